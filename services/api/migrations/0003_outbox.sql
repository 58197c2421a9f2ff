-- What is still to be published. A session's rows leave in the order of their ids.
create table outbox (
    id bigint generated always as identity primary key,
    session uuid not null,
    message_id text not null unique,
    subject text not null,
    headers jsonb not null,
    payload bytea not null,
    created_at timestamptz not null
);
create index outbox_of_session on outbox (session, id);

-- Objects of ended sessions for which one more reaping was asked; once per object.
create table reaped_again (
    uid text primary key,
    session uuid not null,
    at timestamptz not null
);

-- Objects that an operator has confirmed to be ghosts.
create table ghost_release (
    uid text primary key,
    released_by text not null,
    at timestamptz not null
);
