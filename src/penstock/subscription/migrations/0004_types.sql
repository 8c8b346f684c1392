-- Types of all kinds that the user makes, and not enums alone: domains, composite types, ranges. See docs/schema-changes.md.
--
-- An entry of penstock.schema_log.types also has the tables with the type, and those in which it is within the type of a column:
-- in an array, in another composite type, below a domain.

create or replace function penstock.describe_types(wanted oid[])
returns table (oid oid, definition jsonb, rest text)
language sql stable
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY' set intervalstyle = postgres set timezone = 'UTC' set extra_float_digits = 1
set bytea_output = hex set quote_all_identifiers = off set standard_conforming_strings = on
as $$
    select t.oid, jsonb_build_object(
        'oid', t.oid::bigint, 'schema', n.nspname, 'name', t.typname, 'comment', obj_description(t.oid, 'pg_type')
    ) || case t.typtype
        when 'e' then jsonb_build_object('kind', 'enum', 'labels', coalesce((
            select jsonb_agg(jsonb_build_object('id', e.oid::bigint, 'label', e.enumlabel) order by e.enumsortorder)
            from pg_enum e where e.enumtypid = t.oid), '[]'))
        when 'd' then jsonb_build_object(
            'kind', 'domain', 'base', format_type(t.typbasetype, t.typtypmod), 'base_oid', t.typbasetype::bigint,
            'collation', case when t.typcollation <> base.typcollation then t.typcollation::regcollation::text end,
            'default', pg_get_expr(t.typdefaultbin, 0), 'not_null', t.typnotnull,
            'checks', coalesce((
                select jsonb_agg(jsonb_build_object(
                    'id', k.oid::bigint, 'name', k.conname, 'definition', pg_get_constraintdef(k.oid),
                    'validated', k.convalidated) order by k.conname)
                from pg_constraint k where k.contypid = t.oid and k.contype = 'c'), '[]'))
        when 'c' then jsonb_build_object('kind', 'composite', 'attributes', coalesce((
            select jsonb_agg(jsonb_build_object(
                'id', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
                'type_oid', a.atttypid::bigint, 'modifier', a.atttypmod,
                'collation', case when a.attcollation <> of.typcollation then a.attcollation::regcollation::text end
            ) order by a.attnum)
            from pg_attribute a join pg_type of on of.oid = a.atttypid
            where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped), '[]'))
        when 'r' then '{"kind": "range"}' else '{"kind": "multirange"}' end,
        t.typowner::text
    from pg_type t
    join pg_namespace n on n.oid = t.typnamespace
    left join pg_type base on base.oid = t.typbasetype
    left join pg_class c on c.oid = t.typrelid
    where t.oid = any(wanted) and (t.typtype in ('e', 'd', 'r', 'm') or c.relkind = 'c')
        and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'penstock') and n.nspname !~ '^pg_temp'
$$;

create or replace function penstock.all_types() returns oid[]
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(found.oid), '{}') from (
        select t.oid from pg_type t left join pg_class c on c.oid = t.typrelid
        where t.oid >= 16384 and (t.typtype in ('e', 'd', 'r', 'm') or c.relkind = 'c')
        union select d.oid from penstock.type_definitions d
    ) as found
$$;

-- The types that catalog objects are, or are parts of, those that a command dropped included.
create function penstock.types_of(classes oid[], ids oid[], dropped jsonb) returns oid[]
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    class oid;
    id oid;
    found oid[] := '{}';
begin
    for position in 1 .. coalesce(cardinality(ids), 0) loop
        class := classes[position];
        id := ids[position];
        if class = 'pg_type'::regclass then
            found := found || id || array(select r.rngmultitypid from pg_range r where r.rngtypid = id);
        elsif class = 'pg_class'::regclass then
            found := found || array(select c.reltype from pg_class c where c.oid = id and c.relkind = 'c');
        elsif class = 'pg_constraint'::regclass then
            found := found || array(select k.contypid from pg_constraint k where k.oid = id and k.contypid <> 0);
        end if;
    end loop;
    if dropped <> '[]' then
        found := found || array(
            select (d ->> 'oid')::oid from jsonb_array_elements(dropped) as d where d ->> 'type' = 'type'
            union all
            select t.oid from jsonb_array_elements(dropped) as d
            join pg_namespace n on n.nspname = d -> 'names' ->> 0
            join pg_type t on t.typnamespace = n.oid and t.typname = d -> 'names' ->> 1
            where d ->> 'type' = 'composite type column'
            union all
            select to_regtype(d -> 'names' ->> 0)::oid from jsonb_array_elements(dropped) as d
            where d ->> 'type' = 'domain constraint');
    end if;
    return array_remove(found, null);
end
$$;

-- Tables with a column of the type, and those with one of a type that is made of it.
create function penstock.tables_with_type(type oid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp
as $$
    with recursive made_of (class, id, nested) as (
        select 'pg_type'::regclass::oid, type, false
        union
        select above.class, above.id, above.class = 'pg_type'::regclass or made_of.nested from made_of
        join pg_depend d on d.refclassid = 'pg_type'::regclass and d.refobjid = made_of.id
        cross join lateral (
            select 'pg_type'::regclass::oid, d.objid where d.classid = 'pg_type'::regclass
            union all
            select 'pg_type'::regclass::oid, c.reltype from pg_class c
            where d.classid = 'pg_class'::regclass and c.oid = d.objid and c.relkind in ('c', 'r', 'p')
            union all
            select 'pg_class'::regclass::oid, c.oid from pg_class c
            where d.classid = 'pg_class'::regclass and c.oid = d.objid and c.relkind in ('r', 'p')
        ) as above (class, id)
        where made_of.class = 'pg_type'::regclass and above.id <> type
    )
    select jsonb_build_object(
        'tables', coalesce(jsonb_agg(distinct id::bigint), '[]'),
        'nested', coalesce(jsonb_agg(distinct id::bigint) filter (where nested), '[]'))
    from made_of where class = 'pg_class'::regclass
$$;

create or replace function penstock.record_types(wanted oid[], out changed jsonb[], out touched boolean)
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
            changed := changed || (jsonb_build_object(
                'oid', found.oid::bigint, 'schema', coalesce(found.after, found.before) -> 'schema',
                'name', coalesce(found.after, found.before) -> 'name', 'kind', coalesce(found.after, found.before) -> 'kind',
                'before', found.before, 'after', found.after)
                || case when found.known and found.after is not null then penstock.tables_with_type(found.oid)
                    else '{"tables": [], "nested": []}' end);
        end if;
    end loop;
end
$$;

create or replace function penstock.note_drops() returns void
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
            or d.object_type in ('table', 'table column', 'table constraint', 'index', 'default value', 'type', 'composite type column',
                'domain constraint'));
    if noted is not null then
        perform set_config('penstock.dropped', noted::text, true);
    end if;
end
$$;

create or replace function penstock.record_command(command text, path text) returns void
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
        wanted_types := penstock.types_of(classes, ids, dropped);
    end if;

    of_tables := penstock.record_tables(wanted, rewritten);
    if cardinality(wanted_types) > 0 then
        of_types := penstock.record_types(wanted_types);
        changed_types := of_types.changed;
        touched := of_types.touched;
        if not everything and exists (
            select from unnest(changed_types) as c
            where c -> 'before' -> 'name' <> c -> 'after' -> 'name' or c -> 'before' -> 'schema' <> c -> 'after' -> 'schema'
        ) then
            of_types := penstock.record_types(penstock.all_types()); -- those that name it
            changed_types := changed_types || of_types.changed;
        end if;
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
    if not touched and dropped = '[]' and command in ('ALTER TABLE', 'ALTER TYPE', 'ALTER DOMAIN', 'COMMENT') then
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

-- Where there are triggers already, the types are as they are now.
do $$
begin
    if exists (select from penstock.table_definitions) then
        perform penstock.record_types(penstock.all_types());
    end if;
end
$$;

revoke all on all functions in schema penstock from public;
