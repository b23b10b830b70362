-- Rights of the user that the service connects as, where another one owns the tables: as the owner, once, before the
-- first `placement db upgrade`, with psql -d placement -f database-rights.sql. They reach all tables made later, too.
GRANT USAGE ON SCHEMA public TO placement;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO placement;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO placement;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO placement;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO placement;
