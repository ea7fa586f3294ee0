"""The component that draws a run as it happens: its messages, layout and assets; and the files that hand a run over."""
