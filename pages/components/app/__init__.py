"""What all pages share: the app's frame, its session, its routes, and the rules on who may call them."""
