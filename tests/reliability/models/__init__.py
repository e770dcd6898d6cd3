"""State machines that do whatever they like, against small models written from the promises."""
