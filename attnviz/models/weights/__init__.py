"""From weights files, folders and hubs to tensors under timm's names."""
