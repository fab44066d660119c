"""Selection: a model's name in, a worker out, against what a router would else do."""
