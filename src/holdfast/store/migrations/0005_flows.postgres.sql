-- What a flow keeps for the code after its nodes: the last value written to a place is the one that counts.
CREATE TABLE inbox (
  run text COLLATE "C" NOT NULL, node text COLLATE "C" NOT NULL, variable text COLLATE "C" NOT NULL, slot bigint NOT NULL,
  value bytea NOT NULL, source text COLLATE "C" NOT NULL, PRIMARY KEY (run, node, variable, slot)
);

-- For people: the names that the seed of flows gives to these.
CREATE VIEW node_inputs AS SELECT run AS instance_id, node AS target_node_id, variable AS variable_name, value,
  source AS source_node_id, slot AS spread_index FROM inbox;
