-- The statements that write claims of new consumers: postgresql_claims.py prepares them in each session.
--
-- The parameter is one JSON document, an object of storage/claim_rows.py:
-- placement_claim_at_once takes a NewClaims, which allocations/new_claims.py fills;
-- placement_place_at_once takes a NewPod, which pods/store/statements.py fills.
-- `given` takes the document apart. Further parts read the parts before them; the last SELECT is the answer.
-- A name after a colon is text of storage/tables.py, which statements of other claims have as well. :ABOVE is
-- the part of the same name of the statement before: postgresql_claims.py puts it there.
--
-- All parts read one snapshot, which may be older than the locks. Under READ COMMITTED PostgreSQL re-checks each
-- row that it had to wait for: once it has the lock, it takes the newest version of the row and evaluates the
-- conditions of that part again. So conditions on a locked or updated row hold at the time of the lock, and no
-- others do. A row that does not meet them any more drops out, and a later part counts fewer rows.

PREPARE placement_claim_at_once(jsonb) AS
WITH given AS (
    SELECT * FROM jsonb_to_record($1) AS given(
        now timestamp, consumers jsonb, rises jsonb, amounts jsonb, providers varchar[], steps integer[],
        records jsonb)
), ready AS (
    -- One row: only a pod has conditions here.
    SELECT
), consumer AS (
    -- The new consumers, where their projects, users and types are in the database. One that exists is left
    -- out, after a wait where another transaction is writing it. So their number shows whether all were new.
    -- With OFFSET 0 each name is looked up in its index. Otherwise a plan would join whole tables as long as
    -- they are small, and be kept.
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, request, generation,
                           created_at)
    SELECT wanted.uuid, project.id, person.id, type.id, wanted.cluster_id, wanted.request, 1,
           given.now
      FROM given
     CROSS JOIN jsonb_to_recordset(given.consumers) AS wanted(
           uuid varchar, project_id varchar, user_id varchar, consumer_type varchar, cluster_id integer,
           request text)
     CROSS JOIN LATERAL (SELECT id FROM projects WHERE external_id = wanted.project_id OFFSET 0) AS project
     CROSS JOIN LATERAL (SELECT id FROM users WHERE external_id = wanted.user_id OFFSET 0) AS person
      LEFT JOIN LATERAL (SELECT id FROM consumer_types WHERE name = wanted.consumer_type OFFSET 0) AS type
           ON true
     WHERE (wanted.consumer_type IS NULL OR type.id IS NOT NULL) AND EXISTS (SELECT FROM ready)
     ORDER BY wanted.uuid
    ON CONFLICT DO NOTHING RETURNING uuid
), locked AS (
    -- The providers, if all of the consumers were new. A row that had to be waited for is read again, so its
    -- `revision` is the newest one, also where that is newer than the snapshot of the statement.
    SELECT provider.id, provider.uuid, provider.revision
      FROM given
      JOIN resource_providers AS provider ON provider.uuid = ANY(given.providers)
     WHERE (SELECT count(*) FROM consumer) = jsonb_array_length(given.consumers)
     ORDER BY provider.id FOR UPDATE OF provider
), stamped AS (
    -- The stamp and the generation of these providers; no other transaction can change them now.
    UPDATE resource_providers
       SET generation = generation + wanted.step, revision = pg_current_xact_id(), updated_at = given.now,
           content_revision = :CONTENT, usage_revision = pg_current_xact_id()
      FROM given
     CROSS JOIN unnest(given.providers, given.steps) AS wanted(provider_uuid, step)
      JOIN locked ON locked.uuid = wanted.provider_uuid
     WHERE resource_providers.id = locked.id
), applied AS (
    -- The rises of use. The condition is evaluated again on the newest version of an inventory that another
    -- claim has changed since the snapshot, and `used` is of that version. So two claims never exceed it.
    UPDATE inventories SET used = used + wanted.delta
      FROM given
     CROSS JOIN jsonb_to_recordset(given.rises) AS wanted(
           provider_uuid varchar, class_name varchar, delta bigint, least bigint, most bigint, divisor bigint)
      JOIN locked ON locked.uuid = wanted.provider_uuid
     CROSS JOIN LATERAL (SELECT id FROM resource_classes WHERE name = wanted.class_name OFFSET 0) AS class
     WHERE inventories.resource_provider_id = locked.id
       AND inventories.resource_class_id = class.id
       AND :RISE_FITS
    RETURNING 1
), allocated AS (
    -- The amounts of each consumer.
    INSERT INTO allocations (consumer_id, resource_provider_id, resource_class_id, used, created_at)
    SELECT wanted.consumer_uuid, locked.id, class.id, wanted.amount, given.now
      FROM given
     CROSS JOIN jsonb_to_recordset(given.amounts) AS wanted(
           consumer_uuid varchar, provider_uuid varchar, class_name varchar, amount bigint)
      JOIN locked ON locked.uuid = wanted.provider_uuid
     CROSS JOIN LATERAL (SELECT id FROM resource_classes WHERE name = wanted.class_name OFFSET 0) AS class
    RETURNING 1
), recorded AS (
    -- The records of what was changed (storage.audit).
    INSERT INTO audit_records (recorded_at, action, kind, target, consumer_id, revision, after,
                               user_id, project_id, roles, request_id, global_request_id, address)
    SELECT given.now, 'create', wanted.kind, wanted.target, wanted.consumer_uuid, pg_current_xact_id(),
           wanted.after, wanted.user_id, wanted.project_id, wanted.roles, wanted.request_id,
           wanted.global_request_id, wanted.address
      FROM given
     CROSS JOIN jsonb_to_recordset(given.records) AS wanted(
           kind varchar, target text, consumer_uuid varchar, after text, user_id text, project_id text,
           roles text, request_id varchar, global_request_id varchar, address text)
), counted AS (
    -- How many rises were asked for and took place.
    SELECT jsonb_array_length(given.rises) AS asked, (SELECT count(*) FROM applied) AS applied,
           (SELECT count(*) FROM allocated) = jsonb_array_length(given.amounts) AS are_allocated
      FROM given
)
-- The stamp, if everything took place. Else a text is cast to a number: that fails, which undoes everything,
-- and the log of the database shows the text.
SELECT CASE WHEN applied = asked AND are_allocated
            THEN pg_current_xact_id()::text::bigint
            ELSE CAST('claim refused, ' || applied || ' of ' || asked || ' fit' AS bigint)
       END
  FROM counted;

PREPARE placement_place_at_once(jsonb) AS
WITH given AS (
    SELECT * FROM jsonb_to_record($1) AS given(
        now timestamp, consumers jsonb, rises jsonb, amounts jsonb, providers varchar[], steps integer[],
        records jsonb,
        cluster_id integer, rules_generation integer, host_id integer, host_revision xid8,
        used_in_tree bigint, cpus integer[], levels varchar[],
        node_id integer, namespace varchar, name varchar, uid varchar,
        manifest text, status text, format integer)
), cluster AS (
    -- The cluster, locked so that it stays, if no pod with required anti-affinity came since the decision.
    SELECT clusters.id
      FROM given
      JOIN clusters ON clusters.id = given.cluster_id
     WHERE clusters.rules_generation = given.rules_generation FOR KEY SHARE OF clusters
), host AS (
    -- The host, locked. If another transaction changed it before this one got the lock, its newest version
    -- has another stamp, and there is no row.
    SELECT provider.id
      FROM given
      JOIN resource_providers AS provider ON provider.id = given.host_id
     WHERE provider.revision = given.host_revision AND EXISTS (SELECT FROM cluster) FOR UPDATE OF provider
), below AS (
    -- How much is in use of what the import of the node made, by the snapshot of the statement.
    SELECT COALESCE(sum(inventories.used), 0) AS used
      FROM given
      JOIN resource_providers AS member ON member.root_provider_id = given.host_id
      JOIN inventories ON inventories.resource_provider_id = member.id
     WHERE member.cluster_id IS NOT NULL
), ready AS (
    -- One row if the pod may be written.
    SELECT FROM given WHERE EXISTS (SELECT FROM host) AND (SELECT used FROM below) = given.used_in_tree
), consumer AS (:ABOVE
), owned AS (
    -- The logical CPUs that become its own, where no other consumer has them.
    INSERT INTO logical_cpus (node_id, cpu, consumer_id, exclusive_level)
    SELECT given.node_id, own.cpu, consumer.uuid, own.level
      FROM given
     CROSS JOIN consumer
     CROSS JOIN unnest(given.cpus, given.levels) AS own(cpu, level)
    ON CONFLICT DO NOTHING RETURNING 1
), pod AS (
    -- Its row, if its name and uid are new.
    INSERT INTO pods (cluster_id, namespace, name, uid, manifest, status, format, node_id, created_at)
    SELECT given.cluster_id, given.namespace, given.name, given.uid,
           CAST(given.manifest AS json), CAST(given.status AS json), given.format, given.node_id,
           given.now
      FROM given
     CROSS JOIN consumer
    ON CONFLICT DO NOTHING RETURNING 1
), besides AS (
    -- Whether it got all of its CPUs, and a row.
    SELECT (SELECT count(*) FROM owned) = cardinality(given.cpus)
           AND (SELECT count(*) FROM pod) = 1 AS is_whole
      FROM given
), locked AS (:ABOVE
), stamped AS (:ABOVE
), applied AS (:ABOVE
), allocated AS (:ABOVE
), recorded AS (:ABOVE
), counted AS (:ABOVE
), former AS (
    -- The stamps that the providers had when they were locked.
    SELECT array_agg(ARRAY[id, revision::text::bigint]) AS stamps FROM locked
)
-- The stamp, if everything took place. Else a text is cast to a number: that fails, which undoes everything,
-- and the log of the database shows the text.
SELECT CASE WHEN applied = asked AND are_allocated AND (SELECT is_whole FROM besides)
            THEN pg_current_xact_id()::text::bigint
            ELSE CAST('pod refused: ' || CASE
                      WHEN NOT EXISTS (SELECT FROM ready) THEN 'its node or its cluster has changed'
                      WHEN NOT EXISTS (SELECT FROM consumer) THEN 'its consumer exists, or a name of it does not'
                      WHEN NOT (SELECT is_whole FROM besides) THEN 'its name, its uid or a CPU of its own is taken'
                      ELSE applied || ' of ' || asked || ' amounts fit'
                 END AS bigint)
       END,
       (SELECT stamps FROM former)
  FROM counted;
