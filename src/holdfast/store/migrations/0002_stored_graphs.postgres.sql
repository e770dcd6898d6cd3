-- Which graph a run's counts agree with, and since when the code has been seen that shaped it.
ALTER TABLE runs ADD COLUMN signature text COLLATE "C";
ALTER TABLE runs ADD COLUMN adopted bigint NOT NULL DEFAULT 0;
-- Until now `definition` held the signature, and no graph was stored.
UPDATE runs SET signature = definition, definition = NULL;

-- Graphs that are stored for a run: built at run time, frozen, or edited.
CREATE TABLE definitions (
  id text COLLATE "C" PRIMARY KEY, run text COLLATE "C" NOT NULL, signature text COLLATE "C" NOT NULL, nodes bytea NOT NULL, "by" text COLLATE "C" NOT NULL,
  frozen bigint NOT NULL
);
CREATE INDEX definitions_by_run ON definitions (run);

-- When which version of a workflow's code was deployed here, and whether a worker has had it. Of two versions, the one
-- seen later shapes the runs. The graph is kept for those who look at a run without having its code.
CREATE TABLE code (
  workflow text COLLATE "C" NOT NULL, signature text COLLATE "C" NOT NULL, seen bigint NOT NULL, served boolean NOT NULL,
  nodes bytea NOT NULL, PRIMARY KEY (workflow, signature)
);

-- Runs that an older worker has settled something of: whoever has the newer code looks for these often.
CREATE INDEX runs_left_behind ON runs (workflow) WHERE signature IS NULL AND finished IS NULL AND model = 'dag';

CREATE INDEX work_by_ancestry ON work (ancestry) WHERE ancestry IS NOT NULL;
