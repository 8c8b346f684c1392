-- The log of schema changes, which event triggers write. See docs/schema-changes.md.
--
-- What changed is found by comparing each table that a command may have touched with how it was after the command before:
-- the text of a command says too little (functions, DO blocks, several commands in one string).

-- Who uses what is in this schema: it goes with the last of them.
create table penstock.pipelines (
    name text primary key,
    since timestamptz not null default now()
);

-- Rows are only ever inserted, so it can be published as it is.
create table penstock.schema_log (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    lsn pg_lsn not null default pg_current_wal_insert_lsn(), -- of the command; its transaction commits later
    xid bigint not null default pg_current_xact_id()::text::bigint,
    role text not null default case current_setting('role') when 'none' then session_user::text else current_setting('role') end,
    tag text not null,
    statement text, -- all that the client sent in one go, of which this command may be a part
    search_path text,
    objects jsonb not null default '[]', -- [{type, schema, name, identity, oid, subid, class, in_extension, dropped}]
    tables jsonb not null default '[]', -- [{oid, before, after, rewrite}]
    types jsonb not null default '[]', -- [{oid, schema, name, kind, before, after}]
    error text -- why what changed is not in this row; the next command that touches the table tells it
);

-- Every user table as of the last command.
create table penstock.table_definitions (
    oid oid primary key,
    definition jsonb not null,
    rest text, -- what ALTER TABLE can change besides, to tell it from a command that did nothing
    parent oid, -- of a partition or a child
    indexes oid[] not null default '{}',
    updated_at timestamptz not null default now()
);
create index table_definitions_parent on penstock.table_definitions (parent) where parent is not null;

create table penstock.type_definitions (
    oid oid primary key,
    definition jsonb not null,
    rest text,
    updated_at timestamptz not null default now()
);

-- A partitioned table has no rows of its own, so it does not know what rows have that were there before the column. Its
-- partitions do.
create function penstock.missing_in_partitions(table_oid oid, column_name name) returns text
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select (m.attmissingval::text::text[])[1]
    from pg_partition_tree(table_oid) as part
    join pg_attribute m on m.attrelid = part.relid and m.attname = column_name and m.atthasmissing
    where part.isleaf limit 1
$$;

-- A type of the user's as a reader without a catalog can take it: {base, modifier, element}, as of penstock.changes.Column.
create function penstock.base_type(type oid, modifier integer) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
    found pg_type;
    element pg_type;
    below jsonb;
begin
    select t.* into found from pg_type t where t.oid = type;
    if found.typtype = 'd' then
        return penstock.base_type(found.typbasetype, case when found.typtypmod <> -1 then found.typtypmod else modifier end);
    end if;
    select t.* into element from pg_type t where t.oid = found.typelem and t.typarray = found.oid;
    if element.oid is null then
        return jsonb_build_object('base', case
            when found.typtype = 'e' then 'enum'
            when found.typtype = 'b' and found.typnamespace = 'pg_catalog'::regnamespace then found.typname
            else 'other' end, 'modifier', modifier, 'element', null);
    end if;
    below := penstock.base_type(element.oid, modifier);
    if below ->> 'base' = 'array' or element.typdelim <> ',' then
        return jsonb_build_object('base', 'other', 'modifier', modifier, 'element', null);
    end if;
    return jsonb_build_object('base', 'array', 'modifier', below -> 'modifier', 'element', below -> 'base');
end
$$;

-- The catalog's word on tables, those among the given that are user tables. With pg_catalog as the search_path Postgres
-- qualifies all other names; with these settings it writes constants alike in all sessions.
--
-- A session plans each statement when it first comes to it, and planning takes longer than all else: so what a table has none
-- of is not asked for, and one statement for everything would make the first command of a session wait.
create function penstock.describe_tables(wanted oid[])
returns table (oid oid, definition jsonb, rest text, parent oid, indexes oid[])
language plpgsql stable
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set datestyle = 'ISO, MDY' set intervalstyle = postgres set timezone = 'UTC' set extra_float_digits = 1
set bytea_output = hex set quote_all_identifiers = off set standard_conforming_strings = on
as $$
#variable_conflict use_column
declare
    c record;
    comments jsonb;
    names jsonb;
    columns record;
    constraints record;
    foreign_keys jsonb;
    of_indexes record;
    parents oid[];
    partition_of jsonb;
    inherits jsonb;
    access_method name;
    triggers text;
    rules text;
begin
    for c in
        select c.*, n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid = any(wanted) and c.relkind in ('r', 'p') and c.relpersistence <> 't'
            and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'penstock')
    loop
        select jsonb_object_agg(d.objsubid, d.description) into comments
        from pg_description d where d.objoid = c.oid and d.classoid = 'pg_class'::regclass;
        names := (select jsonb_object_agg(a.attnum, a.attname) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0);

        -- Not those of indexes that are invalid: half built, or of a partitioned table whose partitions lack them.
        select (jsonb_agg(con.item) filter (where con.contype = 'p')) -> 0 as primary_key,
            coalesce(jsonb_agg(con.item order by con.conname) filter (where con.contype in ('u', 'x')), '[]') as uniques,
            coalesce(jsonb_agg(con.item order by con.conname) filter (where con.contype in ('c', 'n')), '[]') as checks,
            string_agg(concat_ws(' ', con.oid, con.coninhcount, con.conislocal), ',' order by con.oid)
                filter (where con.item is not null) as rest,
            coalesce(array_agg(con.conindid) filter (where con.contype in ('p', 'u', 'x')), '{}') as indexes,
            coalesce(array_agg(con.conkey[1]) filter (where con.contype = 'n' and not con.convalidated), '{}') as may_be_null,
            coalesce(bool_or(con.contype = 'f'), false) as refers
        into constraints
        from (
            select k.oid, k.contype, k.conname, k.coninhcount, k.conislocal, k.conindid, k.conkey, k.convalidated, case
                when k.contype in ('p', 'u', 'x') and i.indisvalid or k.contype = 'c' or k.contype = 'n' and not k.convalidated
                then jsonb_build_object(
                    'id', k.oid::bigint, 'name', k.conname, 'definition', pg_get_constraintdef(k.oid),
                    'columns', array(select names ->> key::text from unnest(k.conkey) as key where key > 0),
                    'deferrable', k.condeferrable, 'deferred', k.condeferred, 'validated', k.convalidated,
                    'options', coalesce(to_jsonb(ic.reloptions), '[]'), 'kind', k.contype, 'no_inherit', k.connoinherit,
                    'enforced', right(pg_get_constraintdef(k.oid), 13) <> ' NOT ENFORCED')
                end as item
            from pg_constraint k
            left join pg_index i on i.indexrelid = k.conindid and k.contype <> 'f'
            left join pg_class ic on ic.oid = i.indexrelid
            where k.conrelid = c.oid
        ) as con
        where con.item is not null or con.contype in ('p', 'u', 'x', 'f');

        -- One that refers to a partitioned table has a copy for each of its partitions.
        foreign_keys := '[]';
        if constraints.refers then
            foreign_keys := coalesce((
                select jsonb_agg(jsonb_build_object(
                    'id', k.oid::bigint, 'name', k.conname, 'definition', pg_get_constraintdef(k.oid),
                    'columns', array(select names ->> key::text from unnest(k.conkey) as key),
                    'referenced', jsonb_build_object('oid', k.confrelid::bigint, 'schema', fn.nspname, 'table', f.relname),
                    'referenced_columns', array(
                        select a.attname from unnest(k.confkey) with ordinality as key (attnum, position)
                        join pg_attribute a on a.attrelid = k.confrelid and a.attnum = key.attnum order by key.position),
                    'deferrable', k.condeferrable, 'deferred', k.condeferred, 'validated', k.convalidated,
                    'enforced', right(pg_get_constraintdef(k.oid), 13) <> ' NOT ENFORCED'
                ) order by k.conname)
                from pg_constraint k
                join pg_class f on f.oid = k.confrelid
                join pg_namespace fn on fn.oid = f.relnamespace
                left join pg_constraint whole on whole.oid = k.conparentid and whole.conrelid = k.conrelid
                where k.conrelid = c.oid and k.contype = 'f' and whole.oid is null), '[]');
        end if;

        select coalesce(jsonb_agg(jsonb_build_object(
            'id', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
            'type_oid', a.atttypid::bigint, 'modifier', a.atttypmod,
            'not_null', a.attnotnull and a.attnum <> all (constraints.may_be_null),
            'default', pg_get_expr(d.adbin, d.adrelid),
            -- What rows have that were there before the column: the one value that its default had then.
            'missing', case
                when a.atthasmissing and t.typdelim = ',' then (a.attmissingval::text::text[])[1]
                when a.atthasdef and c.relkind = 'p' then penstock.missing_in_partitions(c.oid, a.attname) end,
            'base', case when a.atttypid >= 16384 then penstock.base_type(a.atttypid, a.atttypmod) end,
            'identity', nullif(a.attidentity, ''), 'generated', nullif(a.attgenerated, ''),
            'collation', case when a.attcollation <> t.typcollation then a.attcollation::regcollation::text end,
            'comment', comments ->> a.attnum::text,
            'sequence', null
        ) order by a.attnum), '[]') as list,
        coalesce(bool_or(a.attidentity <> ''), false) as identity,
        string_agg(concat_ws(' ', a.attnum, a.attstorage, a.attcompression, a.attstattarget, a.attoptions,
            a.attislocal, a.attinhcount), ',' order by a.attnum) as rest
        into columns
        from pg_attribute a
        join pg_type t on t.oid = a.atttypid
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped;
        if columns.identity then
            columns.list := (
                select jsonb_agg(case when col -> 'identity' = 'null' then col else jsonb_set(col, '{sequence}', coalesce((
                    select jsonb_build_object('schema', sn.nspname, 'name', sc.relname, 'type', format_type(s.seqtypid, null),
                        'start', s.seqstart, 'increment', s.seqincrement, 'min', s.seqmin, 'max', s.seqmax,
                        'cache', s.seqcache, 'cycle', s.seqcycle)
                    from pg_depend own
                    join pg_class sc on sc.oid = own.objid
                    join pg_namespace sn on sn.oid = sc.relnamespace
                    join pg_sequence s on s.seqrelid = own.objid
                    where own.classid = 'pg_class'::regclass and own.objsubid = 0 and own.refclassid = 'pg_class'::regclass
                        and own.refobjid = c.oid and own.refobjsubid = (col ->> 'id')::int and own.deptype = 'i'
                ), 'null')) end order by position)
                from jsonb_array_elements(columns.list) with ordinality as one (col, position));
        end if;

        of_indexes := null;
        if c.relhasindex then
            select jsonb_agg(jsonb_build_object(
                    'id', i.indexrelid::bigint, 'name', ic.relname, 'definition', pg_get_indexdef(i.indexrelid),
                    'unique', i.indisunique, 'options', coalesce(to_jsonb(ic.reloptions), '[]')
                ) order by ic.relname) filter (where i.indisvalid and i.indexrelid <> all (constraints.indexes)) as list,
                max(ic.relname::text) filter (where i.indisreplident and c.relreplident = 'i') as identity,
                string_agg(concat_ws(' ', i.indexrelid, i.indisclustered), ',' order by i.indexrelid) as rest,
                array_agg(i.indexrelid) as ids
            into of_indexes
            from pg_index i join pg_class ic on ic.oid = i.indexrelid
            where i.indrelid = c.oid;
        else
            select null::jsonb as list, null::text as identity, null::text as rest, null::oid[] as ids into of_indexes;
        end if;

        partition_of := null;
        inherits := '[]';
        parents := array(select i.inhparent from pg_inherits i where i.inhrelid = c.oid order by i.inhparent);
        if parents <> '{}' then
            inherits := (
                select jsonb_agg(jsonb_build_object('oid', p.oid::bigint, 'schema', pn.nspname, 'table', p.relname)
                    order by i.inhseqno)
                from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_namespace pn on pn.oid = p.relnamespace
                where i.inhrelid = c.oid);
        end if;
        if c.relispartition then
            partition_of := inherits -> 0 || jsonb_build_object('bound', pg_get_expr(c.relpartbound, c.oid));
            inherits := '[]';
        end if;

        access_method := null;
        if c.relam = 2 then
            access_method := 'heap';
        elsif c.relam <> 0 then
            access_method := (select am.amname from pg_am am where am.oid = c.relam);
        end if;
        triggers := null;
        if c.relhastriggers then
            triggers := (select string_agg(concat_ws(' ', t.oid, t.tgname, t.tgenabled), ',' order by t.oid)
                from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal);
        end if;
        rules := null;
        if c.relhasrules then
            rules := (select string_agg(concat_ws(' ', r.oid, r.rulename, r.ev_enabled), ',' order by r.oid)
                from pg_rewrite r where r.ev_class = c.oid);
        end if;

        oid := c.oid;
        definition := jsonb_build_object(
            'oid', c.oid::bigint, 'schema', c.nspname, 'table', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence,
            'columns', columns.list, 'primary_key', constraints.primary_key, 'uniques', constraints.uniques,
            'checks', constraints.checks, 'foreign_keys', foreign_keys, 'indexes', coalesce(of_indexes.list, '[]'),
            'replica_identity', jsonb_build_object('kind', c.relreplident, 'index', of_indexes.identity),
            'partition_of', partition_of,
            'settings', jsonb_build_object(
                'options', coalesce(to_jsonb(c.reloptions), '[]'), 'access_method', access_method,
                'partition_key', case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end, 'inherits', inherits),
            'comment', comments ->> '0');
        rest := concat_ws(' ', c.relowner, c.reltablespace, c.relrowsecurity, c.relforcerowsecurity, c.reloftype,
            of_indexes.rest, columns.rest, constraints.rest, triggers, rules);
        parent := parents[1];
        indexes := coalesce(of_indexes.ids, '{}');
        return next;
    end loop;
end
$$;

create function penstock.describe_types(wanted oid[])
returns table (oid oid, definition jsonb, rest text)
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select t.oid, jsonb_build_object(
        'oid', t.oid::bigint, 'schema', n.nspname, 'name', t.typname, 'kind', 'enum', 'labels', coalesce((
            select jsonb_agg(jsonb_build_object('id', e.oid::bigint, 'label', e.enumlabel) order by e.enumsortorder)
            from pg_enum e where e.enumtypid = t.oid), '[]'),
        'comment', obj_description(t.oid, 'pg_type')), t.typowner::text
    from pg_type t join pg_namespace n on n.oid = t.typnamespace
    where t.oid = any(wanted) and t.typtype = 'e' and n.nspname not in ('pg_catalog', 'information_schema', 'penstock')
$$;

-- The tables that catalog objects are, or are parts of; some of them maybe twice.
create function penstock.tables_of(classes oid[], ids oid[]) returns setof oid
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    class oid;
    id oid;
    kind "char";
begin
    for position in 1 .. coalesce(cardinality(ids), 0) loop
        class := classes[position];
        id := ids[position];
        if class = 'pg_class'::regclass then
            kind := (select c.relkind from pg_class c where c.oid = id);
            if kind in ('r', 'p') then
                return next id;
            elsif kind in ('i', 'I') then
                return query select i.indrelid from pg_index i where i.indexrelid = id;
            elsif kind = 'S' then
                return query select own.refobjid from pg_depend own where own.classid = 'pg_class'::regclass
                    and own.objid = id and own.objsubid = 0 and own.refclassid = 'pg_class'::regclass
                    and own.deptype in ('a', 'i') limit 1;
            end if;
        elsif class = 'pg_constraint'::regclass then
            return query select k.conrelid from pg_constraint k where k.oid = id and k.conrelid <> 0;
        elsif class = 'pg_attrdef'::regclass then
            return query select d.adrelid from pg_attrdef d where d.oid = id;
        elsif class = 'pg_trigger'::regclass then
            return query select t.tgrelid from pg_trigger t where t.oid = id;
        elsif class = 'pg_rewrite'::regclass then
            return query select r.ev_class from pg_rewrite r where r.oid = id;
        end if;
    end loop;
end
$$;

-- The tables whose definition names one of these objects, so that it reads otherwise when the object was renamed.
create function penstock.tables_that_name(classes oid[], ids oid[]) returns setof oid
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with named as (
        select object.class, object.id from unnest(classes, ids) as object (class, id)
        union
        select 'pg_type'::regclass, t.typarray from unnest(classes, ids) as object (class, id)
        join pg_type t on t.oid = object.id and object.class = 'pg_type'::regclass
    ), dependent as (
        select distinct d.classid, d.objid from named
        join pg_depend d on d.refclassid = named.class and d.refobjid = named.id
    )
    select * from penstock.tables_of(
        array(select d.classid from dependent d order by 1, d.objid), array(select d.objid from dependent d order by d.classid, 1)
    );
end
$$;

-- Those of a type, a function or a sequence that may have another name now. A table's own name is looked at when it did change.
create function penstock.tables_that_name_other_than_tables(classes oid[], ids oid[]) returns oid[]
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
    other_classes oid[];
    other_ids oid[];
begin
    select array_agg(object.class order by object.position), array_agg(object.id order by object.position)
    into other_classes, other_ids
    from unnest(classes, ids) with ordinality as object (class, id, position)
    where object.class not in ('pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_rewrite'::regclass)
        and not exists (
            select from pg_class c
            where object.class = 'pg_class'::regclass and c.oid = object.id and c.relkind <> 'S');
    if other_ids is null then
        return '{}';
    end if;
    return array(select penstock.tables_that_name(other_classes, other_ids));
end
$$;

-- Tables that were dropped, or that lost a column, a constraint, a default, an index or a trigger.
create function penstock.tables_that_lost(dropped jsonb) returns oid[]
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
    found oid[];
begin
    found := array(
        select (d ->> 'oid')::oid from jsonb_array_elements(dropped) as d where d ->> 'type' = 'table'
        union
        select c.oid from jsonb_array_elements(dropped) as d
        join pg_namespace n on n.nspname = d -> 'names' ->> 0
        join pg_class c on c.relnamespace = n.oid and c.relname = d -> 'names' ->> 1
        where d ->> 'type' in ('table column', 'table constraint', 'default value', 'trigger', 'rule'));
    if dropped @> '[{"type": "index"}]' then
        found := found || array(
            select k.oid from penstock.table_definitions k where k.indexes && array(
                select (d ->> 'oid')::oid from jsonb_array_elements(dropped) as d where d ->> 'type' = 'index'));
    end if;
    return found;
end
$$;

-- Compares tables with how they were, keeps how they are, and says what is different. A row that somebody else holds (two
-- may index a table at once) is not waited for: the next command brings it up to date.
create function penstock.record_tables(
    wanted oid[], rewrites jsonb, out changed jsonb[], out touched boolean, out renamed oid[]
) language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
begin
    changed := '{}';
    renamed := '{}';
    touched := false;
    for found in
        select coalesce(now.oid, was.oid) as oid, was.oid is not null as known, was.definition as before,
            now.definition as after, now.rest, now.parent, now.indexes, rewrites -> coalesce(now.oid, was.oid)::text as rewrite
        from penstock.describe_tables(wanted) as now
        full join (select d.* from penstock.table_definitions d where d.oid = any(wanted)) as was on was.oid = now.oid
        where now.definition is distinct from was.definition or now.rest is distinct from was.rest
            or rewrites ? coalesce(now.oid, was.oid)::text
        order by 1
    loop
        touched := true;
        if found.after is null then
            delete from penstock.table_definitions where oid in (
                select d.oid from penstock.table_definitions d where d.oid = found.oid for update skip locked);
        elsif found.known then
            update penstock.table_definitions
            set definition = found.after, rest = found.rest, parent = found.parent, indexes = found.indexes, updated_at = now()
            where oid in (
                select d.oid from penstock.table_definitions d where d.oid = found.oid for update skip locked);
        else
            insert into penstock.table_definitions (oid, definition, rest, parent, indexes)
            values (found.oid, found.after, found.rest, found.parent, found.indexes) on conflict do nothing;
        end if;
        if found.before is distinct from found.after or found.rewrite is not null then
            changed := changed || jsonb_build_object(
                'oid', found.oid::bigint, 'before', found.before, 'after', found.after, 'rewrite', found.rewrite);
        end if;
        if found.before -> 'schema' <> found.after -> 'schema' or found.before -> 'table' <> found.after -> 'table' or exists (
            select from jsonb_array_elements(found.before -> 'columns') as b
            join jsonb_array_elements(found.after -> 'columns') as a on a -> 'id' = b -> 'id'
            where a -> 'name' <> b -> 'name'
        ) then
            renamed := renamed || found.oid;
        end if;
    end loop;
end
$$;

create function penstock.record_types(wanted oid[], out changed jsonb[], out touched boolean)
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    found record;
begin
    changed := '{}';
    touched := false;
    for found in
        select coalesce(now.oid, was.oid) as oid, was.oid is not null as known, was.definition as before,
            now.definition as after, now.rest
        from penstock.describe_types(wanted) as now
        full join (select d.* from penstock.type_definitions d where d.oid = any(wanted)) as was on was.oid = now.oid
        where now.definition is distinct from was.definition or now.rest is distinct from was.rest
        order by 1
    loop
        touched := true;
        if found.after is null then
            delete from penstock.type_definitions where oid in (
                select d.oid from penstock.type_definitions d where d.oid = found.oid for update skip locked);
        elsif found.known then
            update penstock.type_definitions set definition = found.after, rest = found.rest, updated_at = now()
            where oid in (
                select d.oid from penstock.type_definitions d where d.oid = found.oid for update skip locked);
        else
            insert into penstock.type_definitions (oid, definition, rest)
            values (found.oid, found.after, found.rest) on conflict do nothing;
        end if;
        if found.before is distinct from found.after then
            changed := changed || jsonb_build_object(
                'oid', found.oid::bigint, 'schema', coalesce(found.after, found.before) -> 'schema',
                'name', coalesce(found.after, found.before) -> 'name', 'kind', coalesce(found.after, found.before) -> 'kind',
                'before', found.before, 'after', found.after);
        end if;
    end loop;
end
$$;

create function penstock.all_tables() returns oid[]
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(found.oid), '{}') from (
        select c.oid from pg_class c where c.relkind in ('r', 'p') and c.relpersistence <> 't' and c.oid >= 16384
        union select d.oid from penstock.table_definitions d
    ) as found
$$;

create function penstock.all_types() returns oid[]
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(found.oid), '{}') from (
        select t.oid from pg_type t where t.typtype = 'e' and t.oid >= 16384 union select d.oid from penstock.type_definitions d
    ) as found
$$;

-- The beginning, or what happened while the triggers were not there. The very first time there is nothing to tell.
create function penstock.record_baseline() returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
    first_time constant boolean := not exists (select from penstock.table_definitions)
        and not exists (select from penstock.schema_log);
    of_tables record;
    of_types record;
begin
    of_types := penstock.record_types(penstock.all_types());
    of_tables := penstock.record_tables(penstock.all_tables(), '{}');
    if not first_time and (cardinality(of_tables.changed) > 0 or cardinality(of_types.changed) > 0) then
        insert into penstock.schema_log (tag, tables, types)
        values ('BASELINE', to_jsonb(of_tables.changed), to_jsonb(of_types.changed));
    end if;
end
$$;

-- Publications and subscriptions are not part of the schema that data has; temporary objects and our own are nobody's.
create function penstock.is_of_interest(type text, schema text, identity text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp
as $$
begin
    return type !~ '^(publication|subscription)' and coalesce(schema, '') !~ '^(penstock$|pg_temp|pg_toast_temp)'
        and not (type = 'schema' and identity ~ '^(penstock$|pg_temp|pg_toast_temp)')
        and not (type = 'event trigger' and identity ~ '^penstock_')
        and not (type = 'rule' and identity ~ '^"_RETURN"') -- what a view is made of
        and coalesce(identity, '') !~ ' on (penstock|pg_temp(_\d+)?)\.';
end
$$;

-- What a command dropped or rewrote is known only while it happens; the end of the command finds it in these settings.
create function penstock.note_drops() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    noted jsonb;
begin
    select jsonb_agg(jsonb_build_object(
        'type', d.object_type, 'schema', d.schema_name, 'name', d.object_name, 'identity', d.object_identity,
        'oid', d.objid::bigint, 'subid', d.objsubid, 'class', d.classid::regclass::text, 'in_extension', false,
        'dropped', true, 'shown', d.original or d.normal, 'names', d.address_names) order by d.original desc, d.object_identity)
    into noted
    from pg_event_trigger_dropped_objects() as d
    where not d.is_temporary and penstock.is_of_interest(d.object_type, d.schema_name, d.object_identity)
        and (d.original or d.normal
            or d.object_type in ('table', 'table column', 'table constraint', 'index', 'default value', 'type'));
    if noted is not null then
        perform set_config('penstock.dropped', noted::text, true);
    end if;
end
$$;

create function penstock.note_rewrite() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    reason constant integer := pg_event_trigger_table_rewrite_reason();
    noted jsonb := coalesce(nullif(current_setting('penstock.rewritten', true), ''), '{}');
begin
    noted := noted || jsonb_build_object(pg_event_trigger_table_rewrite_oid()::text, to_jsonb(array(
        select word from (values (1, 'persistence'), (2, 'default'), (4, 'type'), (8, 'access method')) as r (bit, word)
        where reason & bit > 0)));
    perform set_config('penstock.rewritten', noted::text, true);
end
$$;

create function penstock.record_command(command text, path text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    dropped jsonb;
    rewritten jsonb;
    objects jsonb;
    classes oid[];
    ids oid[];
    everything boolean := false;
    wanted oid[];
    wanted_types oid[];
    more oid[];
    of_tables record;
    of_more record;
    of_types record;
    changed_types jsonb[] := '{}';
    touched boolean := false;
begin
    if current_setting('penstock.dropped', true) = 'unknown' then
        everything := true;
        perform set_config('penstock.dropped', '', true);
    end if;
    dropped := coalesce(nullif(current_setting('penstock.dropped', true), ''), '[]');
    rewritten := coalesce(nullif(current_setting('penstock.rewritten', true), ''), '{}');
    if dropped <> '[]' then
        perform set_config('penstock.dropped', '', true);
    end if;
    if rewritten <> '{}' then
        perform set_config('penstock.rewritten', '', true);
    end if;
    if lower(coalesce(current_setting('penstock.skip_schema_log', true), '')) in ('on', 'true', 'yes', '1') then
        return;
    end if;
    if command in ('REFRESH MATERIALIZED VIEW', 'REINDEX') then
        return; -- they make data anew, not the schema
    end if;

    begin
        select jsonb_agg(jsonb_build_object(
                'type', c.object_type, 'schema', c.schema_name, 'name', c.name, 'identity', c.object_identity,
                'oid', c.objid::bigint, 'subid', c.objsubid, 'class', c.classid::regclass::text,
                'in_extension', c.in_extension, 'dropped', false) order by c.position),
            array_agg(c.classid order by c.position), array_agg(c.objid order by c.position)
        into objects, classes, ids
        from (
            select distinct on (c.classid, c.objid, c.objsubid, c.object_type) c.*, i.name
            from rows from (pg_event_trigger_ddl_commands()) with ordinality as c (
                classid, objid, objsubid, command_tag, object_type, schema_name, object_identity, in_extension, command, position)
            left join lateral pg_identify_object(c.classid, c.objid, c.objsubid) as i on true
            order by c.classid, c.objid, c.objsubid, c.object_type, c.position
        ) as c
        where penstock.is_of_interest(c.object_type, c.schema_name, c.object_identity);
    exception when others then
        everything := true; -- Postgres cannot list what a script of an extension made and dropped again
    end;
    if objects is null and dropped = '[]' and rewritten = '{}' and not everything then
        return;
    end if;
    objects := coalesce(objects, '[]');
    everything := everything or command in ('ALTER SCHEMA', 'ALTER EXTENSION'); -- names of all that is in them

    if everything then
        wanted := penstock.all_tables();
        wanted_types := penstock.all_types();
    else
        -- Statement by statement: what a session has no use for, it need not plan.
        wanted := array(select penstock.tables_of(classes, ids));
        if rewritten <> '{}' then
            wanted := wanted || array(select r.key::oid from jsonb_object_keys(rewritten) as r (key));
        end if;
        if dropped <> '[]' then
            wanted := wanted || penstock.tables_that_lost(dropped);
        end if;
        if command like 'ALTER %' and command <> 'ALTER TABLE' then
            wanted := wanted || penstock.tables_that_name_other_than_tables(classes, ids);
        end if;
        if exists (select from pg_class c where c.oid = any(wanted) and c.relhassubclass)
            or exists (select from penstock.table_definitions k where k.parent = any(wanted)) then
            wanted := array(
                with recursive family (oid) as (
                    select unnest(wanted)
                    union
                    select child.oid from family cross join lateral (
                        select i.inhrelid from pg_inherits i where i.inhparent = family.oid
                        union all
                        select k.oid from penstock.table_definitions k where k.parent = family.oid
                    ) as child (oid)
                )
                select f.oid from family as f);
        end if;
        wanted_types := array(
            select object.id from unnest(classes, ids) as object (class, id) where object.class = 'pg_type'::regclass);
        if dropped <> '[]' then
            wanted_types := wanted_types || array(
                select (d ->> 'oid')::oid from jsonb_array_elements(dropped) as d where d ->> 'type' = 'type');
        end if;
    end if;

    of_tables := penstock.record_tables(wanted, rewritten);
    if cardinality(wanted_types) > 0 then
        of_types := penstock.record_types(wanted_types);
        changed_types := of_types.changed;
        touched := of_types.touched;
    end if;
    touched := touched or of_tables.touched;
    if cardinality(of_tables.renamed) > 0 and not everything then
        more := array(
            select t from penstock.tables_that_name(
                array_fill('pg_class'::regclass::oid, array[cardinality(of_tables.renamed)]), of_tables.renamed) as t
            where t <> all (wanted));
        of_more := penstock.record_tables(more, '{}');
        of_tables.changed := of_tables.changed || of_more.changed;
    end if;

    -- Commands that may do nothing, such as ADD COLUMN IF NOT EXISTS, are those about tables and types that we know all of.
    if not touched and dropped = '[]' and command in ('ALTER TABLE', 'ALTER TYPE', 'COMMENT') then
        if not exists (
            select from jsonb_array_elements(objects) as o
            where not exists (
                select from penstock.table_definitions k where k.oid = (o ->> 'oid')::oid and o ->> 'class' = 'pg_class')
            and not exists (
                select from penstock.type_definitions k where k.oid = (o ->> 'oid')::oid and o ->> 'class' = 'pg_type')
        ) then
            return;
        end if;
    end if;
    if dropped <> '[]' then
        objects := objects || coalesce((
            select jsonb_agg(d - 'shown' - 'names' order by position)
            from jsonb_array_elements(dropped) with ordinality as o (d, position) where (d ->> 'shown')::boolean), '[]');
    end if;
    if objects = '[]' and cardinality(of_tables.changed) = 0 and cardinality(changed_types) = 0 then
        return;
    end if;
    insert into penstock.schema_log (tag, statement, search_path, objects, tables, types)
    values (command, current_query(), path, objects, to_jsonb(of_tables.changed), to_jsonb(changed_types));
end
$$;

create function penstock.record_failure(command text, path text, reason text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '200ms'
as $$
begin
    perform set_config('penstock.dropped', '', true), set_config('penstock.rewritten', '', true);
    insert into penstock.schema_log (tag, statement, search_path, error) values (command, current_query(), path, reason);
end
$$;

-- What the event triggers call. These see the session's own search_path, so they name everything in full and use no operator.
-- A command of a user never fails because of what happens here.
create function penstock.on_ddl() returns event_trigger
language plpgsql security definer
as $$
declare
    reason text;
begin
    perform penstock.record_command(tg_tag, pg_catalog.current_setting('search_path'));
exception when others then
    reason := sqlerrm;
    raise warning 'Penstock could not log this command (%): %', tg_tag, reason;
    begin
        perform penstock.record_failure(tg_tag, pg_catalog.current_setting('search_path'), reason);
    exception when others then
        null;
    end;
end
$$;

create function penstock.on_drop() returns event_trigger
language plpgsql security definer
as $$
begin
    perform penstock.note_drops();
exception when others then
    raise warning 'Penstock could not note what this command drops (%): %', tg_tag, sqlerrm;
    perform pg_catalog.set_config('penstock.dropped', 'unknown', true); -- so all tables are looked at
end
$$;

create function penstock.on_rewrite() returns event_trigger
language plpgsql security definer
as $$
begin
    perform penstock.note_rewrite();
exception when others then
    raise warning 'Penstock could not note which table this command rewrites (%): %', tg_tag, sqlerrm;
end
$$;

revoke all on all functions in schema penstock from public;
