CREATE FUNCTION pg_temp.id_at(moment timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0'), '^(.{8})', '\1-')
$$;

CREATE PROCEDURE pg_temp.divide(divided text, by_column text, until text) LANGUAGE plpgsql AS $$
DECLARE
    old text := divided || '_before';
    remark text := obj_description(divided::regclass);
    numbers text := pg_get_serial_sequence(divided, by_column);
    number bigint;
    said text;
    made text[];
    referring text[];
BEGIN
    SELECT array_agg(sql ORDER BY place, sql) INTO made FROM (
        SELECT 1 AS place, format('ALTER TABLE %I ADD CONSTRAINT %I %s', divided, conname, pg_get_constraintdef(oid)) AS sql
        FROM pg_constraint WHERE conrelid = divided::regclass AND contype IN ('p', 'u', 'f')
        UNION ALL
        SELECT 2, pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = divided::regclass
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND conrelid = i.indrelid)
        UNION ALL
        SELECT 3, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = divided::regclass AND NOT tgisinternal
    ) AS definitions;
    SELECT coalesce(array_agg(format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname,
        pg_get_constraintdef(oid))), '{}') INTO referring
    FROM pg_constraint WHERE confrelid = divided::regclass AND contype = 'f';
    FOR said IN
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
        FROM pg_constraint WHERE confrelid = divided::regclass AND contype = 'f'
        UNION ALL SELECT format('DROP TRIGGER %I ON %I', tgname, divided)
        FROM pg_trigger WHERE tgrelid = divided::regclass AND NOT tgisinternal
        UNION ALL SELECT format('ALTER INDEX %s RENAME TO %I', indexrelid::regclass, relname || '_before')
        FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = divided::regclass
    LOOP EXECUTE said; END LOOP;
    EXECUTE format('ALTER TABLE %I RENAME TO %I', divided, old);
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING COMMENTS'
        ' INCLUDING CONSTRAINTS) PARTITION BY RANGE (%I)', divided, old, by_column);
    EXECUTE format('COMMENT ON TABLE %I IS %L', divided, remark);
    IF numbers IS NOT NULL THEN
        EXECUTE format('SELECT last_value FROM %s', numbers) INTO number;
        EXECUTE format('ALTER TABLE %I ALTER COLUMN %I DROP IDENTITY', old, by_column);
        EXECUTE format('ALTER SEQUENCE %s RENAME TO %I', pg_get_serial_sequence(divided, by_column),
            split_part(numbers, '.', 2));
        PERFORM setval(numbers, number);
    END IF;
    FOREACH said IN ARRAY made LOOP EXECUTE said; END LOOP;
    IF until IS NULL THEN
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I DEFAULT', divided, old);
    ELSE
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', divided, old, until);
        EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT', divided || '_rest', divided);
    END IF;
    FOREACH said IN ARRAY referring LOOP EXECUTE said; END LOOP;
END $$;
