"""What makes two serving paths the same, and a short name for it."""
