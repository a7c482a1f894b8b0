-- A queue of version 3 as it was left by it: a job that waits, one that its worker holds, of a submission that is open.
CREATE TABLE benchfarm_queue.farm_file_parts (
    sha256 text NOT NULL,
    part_no integer NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE benchfarm_queue.farm_file_places (
    sha256 text NOT NULL,
    place text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_files (
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL
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
    note text DEFAULT ''::text NOT NULL,
    protocol integer DEFAULT 1 NOT NULL
);
CREATE TABLE benchfarm_queue.farm_job_files (
    job_id bigint NOT NULL,
    sha256 text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_jobs (
    job_id bigint NOT NULL,
    submission text NOT NULL,
    serial text NOT NULL,
    plan_name text NOT NULL,
    campaign_id text NOT NULL,
    host text DEFAULT ''::text NOT NULL,
    note text DEFAULT ''::text NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    deaths integer DEFAULT 0 NOT NULL,
    facts text DEFAULT ''::text NOT NULL,
    came_later boolean DEFAULT false NOT NULL,
    stands_in_for text DEFAULT ''::text NOT NULL,
    stood_in_by text DEFAULT ''::text NOT NULL,
    is_lost boolean DEFAULT false NOT NULL,
    away_since timestamp with time zone
);
CREATE TABLE benchfarm_queue.farm_phones (
    serial text NOT NULL,
    host text NOT NULL,
    facts text NOT NULL,
    unusable text NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    labels text DEFAULT ''::text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_protocol (
    version integer NOT NULL
);
CREATE TABLE benchfarm_queue.farm_schedule_files (
    schedule text NOT NULL,
    sha256 text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_schedules (
    name text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    plan text NOT NULL,
    plan_name text NOT NULL,
    parcels text NOT NULL,
    priority integer NOT NULL,
    grace_s double precision NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    next_at timestamp with time zone NOT NULL
);
CREATE TABLE benchfarm_queue.farm_submission_files (
    submission text NOT NULL,
    sha256 text NOT NULL
);
CREATE TABLE benchfarm_queue.farm_submissions (
    submission text NOT NULL,
    plan text NOT NULL,
    plan_name text NOT NULL,
    parcels text NOT NULL,
    labels text NOT NULL,
    priority integer NOT NULL,
    joins boolean NOT NULL,
    replaces_lost boolean NOT NULL,
    opens_at timestamp with time zone NOT NULL,
    until timestamp with time zone,
    looked_at timestamp with time zone,
    cancelled boolean DEFAULT false NOT NULL
);
CREATE TABLE benchfarm_queue.farm_ticks (
    schedule text NOT NULL,
    tick_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    submission text DEFAULT ''::text NOT NULL,
    host text DEFAULT ''::text NOT NULL,
    note text DEFAULT ''::text NOT NULL,
    told_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT farm_ticks_outcome_check CHECK ((outcome = ANY (ARRAY['submitted'::text, 'missed'::text, 'failed'::text])))
);
INSERT INTO benchfarm_queue.farm_file_parts VALUES ('96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466', 0, '\x61206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c277320627974657361206d6f64656c2773206279746573');
INSERT INTO benchfarm_queue.farm_file_places VALUES ('96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466', '');
INSERT INTO benchfarm_queue.farm_files VALUES ('96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466', 150, '2026-11-22 13:17:46.714975+00');
INSERT INTO benchfarm_queue.farm_hosts VALUES ('old', 1, '0.1.0', '2026-11-22 13:17:46.709465+00', '2026-11-22 13:17:46.709465+00', '', 2);
INSERT INTO benchfarm_queue.farm_job_files VALUES (1, '96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466');
INSERT INTO benchfarm_queue.farm_job_files VALUES (2, '96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466');
INSERT INTO benchfarm_queue.farm_jobs VALUES (1, 'before', 'A', 'nightly', 'before-A', '', '', 0, 0, '{"serial":"A","kind":"android"}', false, '', '', false, NULL);
INSERT INTO benchfarm_queue.farm_jobs VALUES (2, 'before', 'B', 'nightly', 'before-B', 'old', '', 0, 0, '{"serial":"B","kind":"android"}', false, '', '', false, NULL);
INSERT INTO benchfarm_queue.farm_phones VALUES ('A', 'old', '{"serial":"A","kind":"android"}', '', '2026-11-22 13:17:46.710862+00', '{"pools": ["nightly"], "tags": []}');
INSERT INTO benchfarm_queue.farm_phones VALUES ('B', 'old', '{"serial":"B","kind":"android"}', '', '2026-11-22 13:17:46.710862+00', '{"pools": ["nightly"], "tags": []}');
INSERT INTO benchfarm_queue.farm_protocol VALUES (3);
INSERT INTO benchfarm_queue.farm_submission_files VALUES ('before', '96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466');
INSERT INTO benchfarm_queue.farm_submissions VALUES ('before', '{"name":"nightly","models":[{"name":"m","path":"m.tflite","sha256":"96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466"}],"matrix":{"delegates":["xnnpack"],"threads":[],"tools":[],"flags":[[]],"modes":[]},"devices":{"serials":[],"profiles":[],"pools":[],"tags":[],"where":[],"host":false,"one_of_each":"","most":null,"replaces_lost":false,"joins":true},"settings":{"num_runs":50,"min_secs":1.0,"max_secs":150.0,"warmup_runs":1,"warmup_min_secs":0.5,"affinity":"big"},"limits":{"battery_percent_min":20,"battery_heat_c_max":40.0,"thermal_status_max":0,"wait_s":300.0},"passes":["timing"],"invocations":3,"stopping":null,"budget_s":null,"phone_time_s":null,"window":null,"until":null,"importance":[],"quiet":{"screen":"on","airplane":null,"no_doze":null,"animations_off":null,"sync_off":null,"fixed_performance":null,"pin_clocks":null,"pin_gpu":null,"thermal_control_off":null},"sentinel":null,"may_reboot":false,"sustained_s":1800.0,"parity_inputs":null,"search":null,"order":"interleaved","seed":0,"timeout_s":120.0,"builds":{},"sharding":"none","pushes":{"per_host":4,"per_hub":2,"beside_measurements":false},"text":"","folder":null}', 'nightly', '{}', '{}', 3, true, true, '2026-11-22 13:17:46.720662+00', NULL, NULL, false);
INSERT INTO benchfarm_queue.procrastinate_workers OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-22 13:17:46.709465+00');
INSERT INTO benchfarm_queue.procrastinate_jobs VALUES (1, 'v2:phone:A', 'benchfarm.phone', 3, 'phone:A', NULL, '{"plan": "{\"name\":\"nightly\",\"models\":[{\"name\":\"m\",\"path\":\"m.tflite\",\"sha256\":\"96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466\"}],\"matrix\":{\"delegates\":[\"xnnpack\"],\"threads\":[],\"tools\":[],\"flags\":[[]],\"modes\":[]},\"devices\":{\"serials\":[],\"profiles\":[],\"pools\":[],\"tags\":[],\"where\":[],\"host\":false,\"one_of_each\":\"\",\"most\":null,\"replaces_lost\":false,\"joins\":true},\"settings\":{\"num_runs\":50,\"min_secs\":1.0,\"max_secs\":150.0,\"warmup_runs\":1,\"warmup_min_secs\":0.5,\"affinity\":\"big\"},\"limits\":{\"battery_percent_min\":20,\"battery_heat_c_max\":40.0,\"thermal_status_max\":0,\"wait_s\":300.0},\"passes\":[\"timing\"],\"invocations\":3,\"stopping\":null,\"budget_s\":null,\"phone_time_s\":null,\"window\":null,\"until\":null,\"importance\":[],\"quiet\":{\"screen\":\"on\",\"airplane\":null,\"no_doze\":null,\"animations_off\":null,\"sync_off\":null,\"fixed_performance\":null,\"pin_clocks\":null,\"pin_gpu\":null,\"thermal_control_off\":null},\"sentinel\":null,\"may_reboot\":false,\"sustained_s\":1800.0,\"parity_inputs\":null,\"search\":null,\"order\":\"interleaved\",\"seed\":0,\"timeout_s\":120.0,\"builds\":{},\"sharding\":\"none\",\"pushes\":{\"per_host\":4,\"per_hub\":2,\"beside_measurements\":false},\"text\":\"\",\"folder\":null}", "parcel": "{\"builds\":[],\"twins\":[],\"flag_files\":[],\"parity_inputs\":[],\"reference\":null,\"place\":\"\",\"benchfarm\":\"\"}", "serial": "A", "protocol": 2, "submission": "before"}', 'todo', NULL, 0, false, NULL);
INSERT INTO benchfarm_queue.procrastinate_jobs VALUES (2, 'v2:phone:B', 'benchfarm.phone', 3, 'phone:B', NULL, '{"plan": "{\"name\":\"nightly\",\"models\":[{\"name\":\"m\",\"path\":\"m.tflite\",\"sha256\":\"96fb7995a0831ed2cecf0b75a1f2ae41088fd4823fc3c6e1b9860c871de04466\"}],\"matrix\":{\"delegates\":[\"xnnpack\"],\"threads\":[],\"tools\":[],\"flags\":[[]],\"modes\":[]},\"devices\":{\"serials\":[],\"profiles\":[],\"pools\":[],\"tags\":[],\"where\":[],\"host\":false,\"one_of_each\":\"\",\"most\":null,\"replaces_lost\":false,\"joins\":true},\"settings\":{\"num_runs\":50,\"min_secs\":1.0,\"max_secs\":150.0,\"warmup_runs\":1,\"warmup_min_secs\":0.5,\"affinity\":\"big\"},\"limits\":{\"battery_percent_min\":20,\"battery_heat_c_max\":40.0,\"thermal_status_max\":0,\"wait_s\":300.0},\"passes\":[\"timing\"],\"invocations\":3,\"stopping\":null,\"budget_s\":null,\"phone_time_s\":null,\"window\":null,\"until\":null,\"importance\":[],\"quiet\":{\"screen\":\"on\",\"airplane\":null,\"no_doze\":null,\"animations_off\":null,\"sync_off\":null,\"fixed_performance\":null,\"pin_clocks\":null,\"pin_gpu\":null,\"thermal_control_off\":null},\"sentinel\":null,\"may_reboot\":false,\"sustained_s\":1800.0,\"parity_inputs\":null,\"search\":null,\"order\":\"interleaved\",\"seed\":0,\"timeout_s\":120.0,\"builds\":{},\"sharding\":\"none\",\"pushes\":{\"per_host\":4,\"per_hub\":2,\"beside_measurements\":false},\"text\":\"\",\"folder\":null}", "parcel": "{\"builds\":[],\"twins\":[],\"flag_files\":[],\"parity_inputs\":[],\"reference\":null,\"place\":\"\",\"benchfarm\":\"\"}", "serial": "B", "protocol": 2, "submission": "before"}', 'doing', NULL, 0, false, 1);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_jobs_id_seq', 2, true);
SELECT pg_catalog.setval('benchfarm_queue.procrastinate_workers_id_seq', 1, true);
ALTER TABLE ONLY benchfarm_queue.farm_file_parts
    ADD CONSTRAINT farm_file_parts_pkey PRIMARY KEY (sha256, part_no);
ALTER TABLE ONLY benchfarm_queue.farm_file_places
    ADD CONSTRAINT farm_file_places_pkey PRIMARY KEY (sha256, place);
ALTER TABLE ONLY benchfarm_queue.farm_files
    ADD CONSTRAINT farm_files_pkey PRIMARY KEY (sha256);
ALTER TABLE ONLY benchfarm_queue.farm_holds
    ADD CONSTRAINT farm_holds_pkey PRIMARY KEY (scope);
ALTER TABLE ONLY benchfarm_queue.farm_hosts
    ADD CONSTRAINT farm_hosts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY benchfarm_queue.farm_job_files
    ADD CONSTRAINT farm_job_files_pkey PRIMARY KEY (job_id, sha256);
ALTER TABLE ONLY benchfarm_queue.farm_jobs
    ADD CONSTRAINT farm_jobs_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY benchfarm_queue.farm_jobs
    ADD CONSTRAINT farm_jobs_submission_serial_key UNIQUE (submission, serial);
ALTER TABLE ONLY benchfarm_queue.farm_phones
    ADD CONSTRAINT farm_phones_pkey PRIMARY KEY (serial, host);
ALTER TABLE ONLY benchfarm_queue.farm_schedule_files
    ADD CONSTRAINT farm_schedule_files_pkey PRIMARY KEY (schedule, sha256);
ALTER TABLE ONLY benchfarm_queue.farm_schedules
    ADD CONSTRAINT farm_schedules_pkey PRIMARY KEY (name);
ALTER TABLE ONLY benchfarm_queue.farm_submission_files
    ADD CONSTRAINT farm_submission_files_pkey PRIMARY KEY (submission, sha256);
ALTER TABLE ONLY benchfarm_queue.farm_submissions
    ADD CONSTRAINT farm_submissions_pkey PRIMARY KEY (submission);
ALTER TABLE ONLY benchfarm_queue.farm_ticks
    ADD CONSTRAINT farm_ticks_pkey PRIMARY KEY (schedule, tick_at);
CREATE INDEX farm_job_files_sha256 ON benchfarm_queue.farm_job_files USING btree (sha256);
CREATE INDEX farm_submission_files_sha256 ON benchfarm_queue.farm_submission_files USING btree (sha256);
ALTER TABLE ONLY benchfarm_queue.farm_file_parts
    ADD CONSTRAINT farm_file_parts_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_file_places
    ADD CONSTRAINT farm_file_places_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_job_files
    ADD CONSTRAINT farm_job_files_job_id_fkey FOREIGN KEY (job_id) REFERENCES benchfarm_queue.farm_jobs(job_id) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_job_files
    ADD CONSTRAINT farm_job_files_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256);
ALTER TABLE ONLY benchfarm_queue.farm_phones
    ADD CONSTRAINT farm_phones_host_fkey FOREIGN KEY (host) REFERENCES benchfarm_queue.farm_hosts(name) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_schedule_files
    ADD CONSTRAINT farm_schedule_files_schedule_fkey FOREIGN KEY (schedule) REFERENCES benchfarm_queue.farm_schedules(name) ON DELETE CASCADE;
ALTER TABLE ONLY benchfarm_queue.farm_schedule_files
    ADD CONSTRAINT farm_schedule_files_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256);
ALTER TABLE ONLY benchfarm_queue.farm_submission_files
    ADD CONSTRAINT farm_submission_files_sha256_fkey FOREIGN KEY (sha256) REFERENCES benchfarm_queue.farm_files(sha256);
ALTER TABLE ONLY benchfarm_queue.farm_submission_files
    ADD CONSTRAINT farm_submission_files_submission_fkey FOREIGN KEY (submission) REFERENCES benchfarm_queue.farm_submissions(submission) ON DELETE CASCADE;
