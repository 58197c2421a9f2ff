//! How long phases take, from the timelines.

use time::OffsetDateTime;

use super::{Error, Store};

/// Median and spread of one phase of one lab, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PhaseStat {
    pub(crate) lab: String,
    pub(crate) phase: String,
    pub(crate) count: i64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
}

/// How sessions of a lab ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndStat {
    pub(crate) lab: String,
    pub(crate) reason: String,
    pub(crate) count: i64,
}

impl Store {
    /// Phases of sessions created after `since`. Late outcomes are no phase.
    pub(crate) async fn phase_stats(&self, since: OffsetDateTime) -> Result<Vec<PhaseStat>, Error> {
        sqlx::query_as!(
            PhaseStat,
            r#"with times as (
                select s.lab, t.session, m.name,
                    min(t.at) filter (where t.step = 'requested') as requested,
                    min(t.at) filter (where t.step = 'provisioned') as provisioned,
                    min(t.at) filter (where t.step = 'scheduled') as scheduled,
                    min(t.at) filter (where t.step = 'running') as running,
                    min(t.at) filter (where t.step = 'agent') as agent,
                    min(t.at) filter (where t.step = 'ready' and t.machine <> '') as ready,
                    min(t.at) filter (where t.step = 'ready' and t.machine = '') as session_ready,
                    min(t.at) filter (where t.step = 'ending') as ending,
                    min(t.at) filter (where t.step = 'ended') as ended
                from session s
                join machine m on m.session = s.id
                join timeline t on t.session = s.id and t.machine in ('', m.name) and not t.late
                where s.created_at > $1
                group by s.lab, t.session, m.name
            ), phases as (
                -- KubeVirt keeps whole seconds: a phase may seem to begin before the one before it ended.
                select lab, p.phase, greatest(p.took, interval '0') as took
                from times, lateral (values
                    (1, 'provisioning', provisioned - requested),
                    (2, 'disk', scheduled - provisioned),
                    (3, 'boot', running - scheduled),
                    (4, 'agent', agent - running),
                    (5, 'prepare', ready - agent),
                    (6, 'start', session_ready - requested),
                    (7, 'ending', ended - ending)
                ) as p(ordinal, phase, took)
                where p.took is not null
            )
            select lab as "lab!", phase as "phase!", count(*) as "count!",
                percentile_cont(0.5) within group (order by extract(epoch from took)::float8 * 1000) as "p50_ms!",
                percentile_cont(0.9) within group (order by extract(epoch from took)::float8 * 1000) as "p90_ms!"
            from phases group by lab, phase order by lab, phase"#,
            since
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("compute statistics"))
    }

    /// Reasons of ends of sessions created after `since`.
    pub(crate) async fn end_stats(&self, since: OffsetDateTime) -> Result<Vec<EndStat>, Error> {
        sqlx::query_as!(
            EndStat,
            r#"select lab, reason as "reason!", count(*) as "count!" from session
               where created_at > $1 and reason is not null group by lab, reason order by lab, reason"#,
            since
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("compute statistics"))
    }
}
