"""Parts that all commands share: options, help, hints, tables, standard streams."""
