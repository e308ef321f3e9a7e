"""Code that admits some GPU architectures and not others."""
