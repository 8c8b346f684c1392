-- The queue of imports: one row per table and sink that is to be copied. See docs/decisions/0008-imports.md.
create table penstock.import_jobs (
    id bigint generated always as identity primary key,
    pipeline text not null,
    sink text not null,
    table_oid oid not null,
    schema_name text not null,
    table_name text not null,
    state text not null default 'pending'
        check (state in ('pending', 'copying', 'catching_up', 'streaming', 'failed', 'removed', 'expired')),
    again boolean not null default false, -- the sink has rows of this table from an earlier import
    published_xids bigint[] not null default '{}', -- transactions that were running when the job was made
    from_lsn pg_lsn,
    from_xids bigint[] not null default '{}', -- transactions that were running when from_lsn was taken
    to_lsn pg_lsn,
    relation jsonb, -- the table's layout, which the chunks were planned for
    snapshot text,
    copier bigint, -- who works on it; alive as long as it holds the advisory lock of that number
    attempts integer not null default 0,
    error text,
    next_try_at timestamptz,
    rows_estimated bigint,
    bytes_estimated bigint,
    chunks integer not null default 0, -- these four are kept here, since there may be very many chunks
    chunks_done integer not null default 0, -- staged or done
    rows_copied bigint not null default 0,
    bytes_copied bigint not null default 0,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    updated_at timestamptz not null default now(),
    completed_at timestamptz
);

-- A table has one import per sink that counts; whatever came before it is expired.
create unique index import_jobs_active on penstock.import_jobs (pipeline, sink, table_oid) where state <> 'expired';
create index import_jobs_copier on penstock.import_jobs (copier) where copier is not null;

create table penstock.import_chunks (
    job_id bigint not null references penstock.import_jobs on delete cascade,
    number integer not null check (number >= 1),
    chunk jsonb not null,
    bytes_estimated bigint not null,
    state text not null default 'todo' check (state in ('todo', 'copying', 'staged', 'done')),
    copier bigint,
    claim bigint, -- chunks that were taken together, to be read over one connection
    rows bigint,
    bytes bigint,
    primary key (job_id, number)
);

-- The queue in its order, without what is copied already: that is most of it in the end.
create index import_chunks_open on penstock.import_chunks (job_id, number) where state in ('todo', 'copying');
create index import_chunks_copier on penstock.import_chunks (copier) where state = 'copying';

create sequence penstock.import_claims;

-- What `tables add` and `tables remove` said, which overrules the patterns of the config file.
create table penstock.table_choices (
    pipeline text not null,
    schema_name text not null,
    table_name text not null,
    choice text not null check (choice in ('add', 'remove')),
    primary key (pipeline, schema_name, table_name)
);
