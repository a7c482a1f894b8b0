-- A queue of version 1 as it was left by it: a job that waits, one that its worker holds.
CREATE TABLE benchfarm_queue.farm_file_parts (
    sha256 text NOT NULL,
    part_no integer NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE benchfarm_queue.farm_files (
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL
);
CREATE TABLE benchfarm_queue.farm_holds (
    scope text NOT NULL,
    kind text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT farm_holds_kind_check CHECK ((kind = ANY (ARRAY['pause'::text, 'drain'::text])))
);
CREATE TABLE benchfarm_queue.farm_hosts (
    name text NOT NULL,
    worker_id bigint NOT NULL,
    benchfarm_version text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    note text DEFAULT ''::text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_jobs (
    job_id bigint NOT NULL,
    submission text NOT NULL,
    serial text NOT NULL,
    plan_name text NOT NULL,
    campaign_id text NOT NULL,
    host text DEFAULT ''::text NOT NULL,
    note text DEFAULT ''::text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_phones (
    serial text NOT NULL,
    host text NOT NULL,
    facts text NOT NULL,
    unusable text NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE benchfarm_queue.farm_protocol (
    version integer NOT NULL
);
INSERT INTO benchfarm_queue.farm_file_parts VALUES ('96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466', 0, '\x61206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c2773206279746573');
INSERT INTO benchfarm_queue.farm_files VALUES ('96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466', 150);
INSERT INTO benchfarm_queue.farm_holds VALUES ('host:other', 'pause', '2026-11-22 05:40:37.353208+00');
INSERT INTO benchfarm_queue.farm_hosts VALUES ('old', 1, '0.1.0', '2026-11-22 05:40:37.274721+00', '2026-11-22 05:40:37.274721+00', '');
INSERT INTO benchfarm_queue.farm_jobs VALUES (1, 'before', 'A', 'nightly', 'before-A', '', '');
INSERT INTO benchfarm_queue.farm_jobs VALUES (2, 'before', 'B', 'nightly', 'before-B', 'old', '');
INSERT INTO benchfarm_queue.farm_phones VALUES ('A', 'old', '{"serial":"A","kind":"android"}', '', '2026-11-22 05:40:37.289225+00');
INSERT INTO benchfarm_queue.farm_phones VALUES ('B', 'old', '{"serial":"B","kind":"android"}', '', '2026-11-22 05:40:37.289225+00');
INSERT INTO benchfarm_queue.farm_protocol VALUES (1);
ALTER TABLE ONLY benchfarm_queue.farm_file_parts
    ADD CONSTRAINT farm_file_parts_pkey PRIMARY KEY (sha256, part_no);
ALTER TABLE ONLY benchfarm_queue.farm_files
    ADD CONSTRAINT farm_files_pkey PRIMARY KEY (sha256);
ALTER TABLE ONLY benchfarm_queue.farm_holds
    ADD CONSTRAINT farm_holds_pkey PRIMARY KEY (scope);
ALTER TABLE ONLY benchfarm_queue.farm_hosts
    ADD CONSTRAINT farm_hosts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY benchfarm_queue.farm_jobs
    ADD CONSTRAINT farm_jobs_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY benchfarm_queue.farm_jobs
    ADD CONSTRAINT farm_jobs_submission_serial_key UNIQUE (submission, serial);
ALTER TABLE ONLY benchfarm_queue.farm_phones
    ADD CONSTRAINT farm_phones_pkey PRIMARY KEY (serial, host);
ALTER TABLE ONLY benchfarm_queue.farm_file_parts
    ADD CONSTRAINT farm_file_parts_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_phones
    ADD CONSTRAINT farm_phones_host_fkey FOREIGN KEY (host) REFERENCES benchfarm_queue.farm_hosts(name) ON DELETE CASCADE;
INSERT INTO benchfarm_queue.procrastinate_workers OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-22 05:40:37.274721+00');
INSERT INTO benchfarm_queue.procrastinate_jobs VALUES (1, 'phone:A', 'benchfarm.phone', 3, 'phone:A', NULL, '{"plan": "{\"name\":\"nightly\",\"models\":[{\"name\":\"m\",\"path\":\"m.tflite\",\"sha256\":\"96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466\"}],\"matrix\":{\"delegates\":[\"xnnpack\"],\"threads\":[],\"tools\":[],\"flags\":[[]],\"modes\":[]},\"devices\":{\"serials\":[],\"profiles\":[],\"pools\":[],\"tags\":[],\"where\":[],\"host\":false},\"settings\":{\"num_runs\":50,\"min_secs\":1.0,\"max_secs\":150.0,\"warmup_runs\":1,\"warmup_min_secs\":0.5,\"affinity\":\"big\"},\"limits\":{\"battery_percent_min\":20,\"battery_heat_c_max\":40.0,\"thermal_status_max\":0,\"wait_s\":300.0},\"passes\":[\"timing\"],\"invocations\":3,\"stopping\":null,\"budget_s\":null,\"quiet\":{\"screen\":\"on\",\"airplane\":null,\"no_doze\":null,\"animations_off\":null,\"sync_off\":null,\"fixed_performance\":null,\"pin_clocks\":null,\"pin_gpu\":null,\"thermal_control_off\":null},\"sentinel\":null,\"may_reboot\":false,\"sustained_s\":1800.0,\"parity_inputs\":null,\"search\":null,\"order\":\"interleaved\",\"seed\":0,\"timeout_s\":120.0,\"builds\":{},\"text\":\"\"}", "serial": "A", "protocol": 1, "submission": "before"}', 'todo', NULL, 0, false, NULL);
INSERT INTO benchfarm_queue.procrastinate_jobs VALUES (2, 'phone:B', 'benchfarm.phone', 3, 'phone:B', NULL, '{"plan": "{\"name\":\"nightly\",\"models\":[{\"name\":\"m\",\"path\":\"m.tflite\",\"sha256\":\"96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466\"}],\"matrix\":{\"delegates\":[\"xnnpack\"],\"threads\":[],\"tools\":[],\"flags\":[[]],\"modes\":[]},\"devices\":{\"serials\":[],\"profiles\":[],\"pools\":[],\"tags\":[],\"where\":[],\"host\":false},\"settings\":{\"num_runs\":50,\"min_secs\":1.0,\"max_secs\":150.0,\"warmup_runs\":1,\"warmup_min_secs\":0.5,\"affinity\":\"big\"},\"limits\":{\"battery_percent_min\":20,\"battery_heat_c_max\":40.0,\"thermal_status_max\":0,\"wait_s\":300.0},\"passes\":[\"timing\"],\"invocations\":3,\"stopping\":null,\"budget_s\":null,\"quiet\":{\"screen\":\"on\",\"airplane\":null,\"no_doze\":null,\"animations_off\":null,\"sync_off\":null,\"fixed_performance\":null,\"pin_clocks\":null,\"pin_gpu\":null,\"thermal_control_off\":null},\"sentinel\":null,\"may_reboot\":false,\"sustained_s\":1800.0,\"parity_inputs\":null,\"search\":null,\"order\":\"interleaved\",\"seed\":0,\"timeout_s\":120.0,\"builds\":{},\"text\":\"\"}", "serial": "B", "protocol": 1, "submission": "before"}', 'doing', '2026-11-22 05:40:37.321639+00', 1, false, 1);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_events_id_seq', 6, true);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_jobs_id_seq', 2, true);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_periodic_defers_id_seq', 1, false);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_workers_id_seq', 1, true);
