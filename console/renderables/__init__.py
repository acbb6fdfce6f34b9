"""Renderables: pure drawing, from values to strips."""
