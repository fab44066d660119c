"""The simulator against what real vLLM servers were seen to do."""
