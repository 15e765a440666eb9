"""From a backbone and prepared images to raw attention maps."""
