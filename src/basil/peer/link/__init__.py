"""How messages get from one member to another: mutual TLS, and a bound on everything."""
