"""The component that draws a figure."""
