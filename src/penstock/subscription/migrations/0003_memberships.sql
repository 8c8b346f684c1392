-- How the table was in the publications when the import was made: see penstock.subscription.membership. Null: not known.
alter table penstock.import_jobs add column membership jsonb;
