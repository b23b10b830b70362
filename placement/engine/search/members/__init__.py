"""Members of one claim under rules between them."""
