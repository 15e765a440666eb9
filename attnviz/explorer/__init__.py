"""One HTML page that holds the queries and keys of an image, and computes attention from them."""
