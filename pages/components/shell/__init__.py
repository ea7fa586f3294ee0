"""What every page stands in: the app's frame, its session, its routes and who may call them."""
