-- Who this database is. The id is made here and nowhere else; streams and the cluster carry copies of it.
create table installation (
    id uuid not null default gen_random_uuid(),
    -- Written by the first set-up: a database serves one environment for ever.
    environment text,
    is_only boolean primary key default true check (is_only)
);
insert into installation default values;
