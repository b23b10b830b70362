"""The OpenAPI document, made of what the routes say of themselves (api.described)."""
