"""What makes an engine accept less or work slower."""
