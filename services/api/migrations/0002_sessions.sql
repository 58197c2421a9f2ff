-- One row per session. `version` is raised with every change and compared when a change is written.
create table session (
    id uuid primary key,
    owner text not null,
    lab text not null,
    lab_digest text not null,
    runtime text not null,
    state text not null check (state in
        ('queued', 'requested', 'provisioning', 'booting', 'preparing', 'ready', 'ending', 'ended')),
    version bigint not null check (version > 0),
    disk_ms bigint not null,
    boot_ms bigint not null,
    agent_ms bigint not null,
    prepare_ms bigint not null,
    life_ms bigint not null,
    idle_ms bigint not null,
    extend_step_ms bigint not null,
    extend_max_ms bigint not null,
    created_at timestamptz not null,
    requested_at timestamptz,
    start_deadline timestamptz,
    ready_at timestamptz,
    expires_at timestamptz,
    idle_at timestamptz,
    reason text,
    cause text,
    log_tail text,
    ending_at timestamptz,
    ending_version bigint,
    ended_at timestamptz,
    constraint session_ends_with_a_reason check ((state in ('ending', 'ended')) = (reason is not null))
);

-- At most one live session per student, whatever the code does.
create unique index session_one_live_per_owner on session (owner)
    where state in ('queued', 'requested', 'provisioning', 'booting', 'preparing', 'ready');
create index session_open on session (id) where state <> 'ended';
create index session_of_owner on session (owner, id);
create index session_by_lab on session (lab, created_at);

create table machine (
    session uuid not null references session (id),
    ordinal smallint not null,
    name text not null,
    progress text not null check (progress in
        ('none', 'started', 'provisioned', 'scheduled', 'running', 'agent', 'ready')),
    disk text,
    disk_reason text,
    pinned_uid text,
    primary key (session, name)
);

create table timeline (
    session uuid not null references session (id),
    step text not null,
    -- Empty for the session's own steps.
    machine text not null,
    at timestamptz not null,
    projected_at timestamptz not null,
    late boolean not null,
    primary key (session, step, machine)
);

create table check_result (
    id uuid primary key,
    session uuid not null references session (id),
    step integer not null,
    outcome text not null,
    auto boolean not null,
    at timestamptz not null,
    exit_code integer,
    output text not null,
    truncated boolean not null,
    cause text
);
create index check_result_latest on check_result (session, step, at desc);

-- Steps and graders of a lab's content, kept while a session of it lives: the directory may have moved on.
create table lab_content (
    digest text primary key,
    lab text not null,
    steps jsonb not null
);
