"""WHO is there: workers, their health, their models, and the index made of them."""
