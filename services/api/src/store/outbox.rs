//! What waits to be published.

use std::collections::BTreeMap;

use lab_domain::SessionId;
use sqlx::types::Json;
use time::OffsetDateTime;

use super::{Error, OUTBOX_CHANNEL, Store, Tx};

/// A message that is to leave after the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Repeated publishes carry the same.
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) payload: Vec<u8>,
}

/// A message in the outbox.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its place in the line.
    pub(crate) place: i64,
    pub(crate) message: Message,
}

impl Store {
    /// Puts messages into the outbox, in this order, and wakes the relays after the commit.
    pub(crate) async fn enqueue(
        tx: &mut Tx,
        session: SessionId,
        messages: &[Message],
        now: OffsetDateTime,
    ) -> Result<(), Error> {
        if messages.is_empty() {
            return Ok(());
        }
        let column = |of: fn(&Message) -> String| messages.iter().map(of).collect::<Vec<_>>();
        let headers: Vec<_> = messages.iter().map(|m| serde_json::json!(m.headers)).collect();
        let payloads: Vec<_> = messages.iter().map(|m| m.payload.clone()).collect();
        sqlx::query!(
            "insert into outbox (session, message_id, subject, headers, payload, created_at)
             select $1, m.id, m.subject, m.headers, m.payload, $6
             from unnest($2::text[], $3::text[], $4::jsonb[], $5::bytea[]) with ordinality
                as m (id, subject, headers, payload, place)
             order by m.place",
            session.0,
            &column(|m| m.id.clone()),
            &column(|m| m.subject.clone()),
            &headers,
            &payloads,
            now
        )
        .execute(&mut **tx)
        .await
        .map_err(Error::sql("write outbox rows"))?;
        Self::notify(tx, OUTBOX_CHANNEL, &session.to_string()).await
    }

    /// Sessions with something in the outbox, those that wait longest first.
    pub(crate) async fn waiting_sessions(&self, limit: i64) -> Result<Vec<SessionId>, Error> {
        let ids = sqlx::query_scalar!(
            "select session from outbox group by session order by min(id) limit $1",
            limit
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::sql("look into the outbox"))?;
        Ok(ids.into_iter().map(SessionId).collect())
    }

    /// When the oldest message was put into the outbox.
    pub(crate) async fn oldest_waiting(&self) -> Result<Option<OffsetDateTime>, Error> {
        sqlx::query_scalar!("select min(created_at) from outbox")
            .fetch_one(self.pool())
            .await
            .map_err(Error::sql("look into the outbox"))
    }

    /// Claims a session's line until the end of the transaction; false if another relay has it.
    pub(crate) async fn claim_line(tx: &mut Tx, session: SessionId) -> Result<bool, Error> {
        sqlx::query_scalar!(
            "select pg_try_advisory_xact_lock(hashtextextended($1, 0)) as \"claimed!\"",
            session.to_string()
        )
        .fetch_one(&mut **tx)
        .await
        .map_err(Error::sql("claim a line of the outbox"))
    }

    /// A session's messages in their order.
    pub(crate) async fn line(tx: &mut Tx, session: SessionId) -> Result<Vec<Waiting>, Error> {
        let rows = sqlx::query!(
            "select id, message_id, subject, headers as \"headers: Json<BTreeMap<String, String>>\", payload
             from outbox where session = $1 order by id limit 100",
            session.0
        )
        .fetch_all(&mut **tx)
        .await
        .map_err(Error::sql("read the outbox"))?;
        let waiting = rows.into_iter().map(|r| Waiting {
            place: r.id,
            message: Message {
                id: r.message_id,
                subject: r.subject,
                headers: r.headers.0,
                payload: r.payload,
            },
        });
        Ok(waiting.collect())
    }

    /// Takes published messages out.
    pub(crate) async fn published(tx: &mut Tx, places: &[i64]) -> Result<(), Error> {
        sqlx::query!("delete from outbox where id = any($1)", places)
            .execute(&mut **tx)
            .await
            .map_err(Error::sql("clear the outbox"))?;
        Ok(())
    }
}
