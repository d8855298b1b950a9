-- Two roles on Postgres. The application writes the record and cannot rewrite it; the keeper
-- (erasure, pruning, import) can, and no request of a person ever runs as the keeper.
--
--   psql -v application=app -v keeper=app_keeper -v schema=public -f grants.sql
--
-- Run it as the owner of the tables, after every upgrade that adds a table.

GRANT USAGE ON SCHEMA :"schema" TO :"application", :"keeper";

-- An event is a fact: the application adds facts and reads them. No UPDATE, no DELETE.
GRANT SELECT, INSERT ON :"schema".assistant_events TO :"application";

-- Rows that move from state to state. They are never removed.
GRANT SELECT, INSERT, UPDATE ON
  :"schema".assistant_threads,
  :"schema".assistant_inputs,
  :"schema".assistant_runs,
  :"schema".assistant_tool_calls,
  :"schema".assistant_approvals,
  :"schema".assistant_compactions
TO :"application";

-- What is known of a file does not change.
GRANT SELECT, INSERT ON :"schema".assistant_files TO :"application";

-- The private context of a turn goes when the turn is over.
GRANT SELECT, INSERT, UPDATE, DELETE ON :"schema".assistant_contexts TO :"application";

-- The relay claims milestones and forgets what was handed out.
GRANT SELECT, INSERT, UPDATE, DELETE ON :"schema".assistant_outbox TO :"application";

-- The application may ask whether the schema is the one it was built for.
GRANT SELECT ON :"schema".assistant_alembic_version TO :"application", :"keeper";

GRANT SELECT, INSERT, UPDATE, DELETE ON
  :"schema".assistant_threads,
  :"schema".assistant_events,
  :"schema".assistant_inputs,
  :"schema".assistant_runs,
  :"schema".assistant_tool_calls,
  :"schema".assistant_approvals,
  :"schema".assistant_files,
  :"schema".assistant_compactions,
  :"schema".assistant_contexts,
  :"schema".assistant_outbox
TO :"keeper";
