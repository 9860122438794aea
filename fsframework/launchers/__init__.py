"""The launcher of the core, and processes that do not outlive whoever started them."""
