"""Making room for pods that lack nothing but devices: whom it is made for, what is kept for them, and who has to go."""
