"""The stages between an image file and its figure; the engines connect them."""
