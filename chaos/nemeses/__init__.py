"""What goes wrong, when and to whom: one small class per kind of fault, and the rotation."""
