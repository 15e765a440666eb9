"""One HTML page that holds a picture's queries and keys, and computes attention from them."""
