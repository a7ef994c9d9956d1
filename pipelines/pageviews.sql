-- The same pipeline as pageviews.py, to the letter: views of each page in each minute, by the time
-- at which they happened. Run one of the two; they keep the same view.
--
--     headrace run pipelines/pageviews.sql
--     headrace views show hits_per_minute
--     headrace consume pageviews.late

CREATE APPLICATION pageviews WITH (log = 'file:./data');

CREATE TOPIC pageviews (url STRING, user STRING, at TIMESTAMP)
WITH (key = 'url', event_time = 'at');

CREATE VIEW hits_per_minute
WITH (delay = '10 seconds', grace = '5 minutes', emit = 'updates', key = 'url, window_start')
AS SELECT
    url,
    window_start,
    window_end,
    COUNT(*) AS hits,
    APPROX_COUNT_DISTINCT(user) AS people
FROM pageviews
GROUP BY url, TUMBLE(at, INTERVAL '1 minute');

PUBLISH LATE OF hits_per_minute TO 'pageviews.late';
