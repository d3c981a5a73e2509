BEGIN TRANSACTION;
CREATE TABLE sandbridge_grants (
	id TEXT NOT NULL, 
	given DOUBLE NOT NULL, 
	tool TEXT NOT NULL, 
	server_identity TEXT, 
	definition_digest TEXT NOT NULL, 
	run_id TEXT, 
	call_id TEXT, 
	arguments_digest TEXT, 
	until DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "sandbridge_grants" VALUES('9c50d03395ff4426813a5a5c8afdb25f',100.0,'pay',NULL,'d',NULL,NULL,NULL,9e999);
CREATE TABLE sandbridge_meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "sandbridge_meta" VALUES('schema','1');
CREATE TABLE sandbridge_records (
	run_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (run_id, seq), 
	FOREIGN KEY(run_id) REFERENCES sandbridge_runs (id) ON DELETE CASCADE
);
INSERT INTO "sandbridge_records" VALUES('old',0,X'0070726F6772616D');
INSERT INTO "sandbridge_records" VALUES('old',1,X'7265706C79');
CREATE TABLE sandbridge_runs (
	id TEXT NOT NULL, 
	status TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	updated DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	program_digest TEXT NOT NULL, 
	program_start TEXT NOT NULL, 
	audience TEXT NOT NULL, 
	engine_digest TEXT NOT NULL, 
	lease_owner TEXT, 
	lease_until DOUBLE NOT NULL, 
	fence BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	claim_digest TEXT, 
	spent_claim TEXT, 
	waiting TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "sandbridge_runs" VALUES('old','paused',100.0,101.0,500.0,'486d9affb60dbb0063b03d8e23a6ccf6364ce203dc3a9f56f20e750eb41ecade','return 1','tests','v8',NULL,0.0,1,2,'claim',NULL,'[{"call": "c1", "tool": "pay", "kind": "approval", "expires_at": 500, "line": 3}]','');
CREATE INDEX sandbridge_runs_created ON sandbridge_runs (created);
CREATE INDEX sandbridge_runs_status_created ON sandbridge_runs (status, created);
CREATE INDEX sandbridge_grants_tool ON sandbridge_grants (tool);
CREATE INDEX sandbridge_grants_run ON sandbridge_grants (run_id);
COMMIT;
