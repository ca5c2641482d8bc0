//! Leases, call by call. [`crate::KeepAlive`] is what keeps one alive in the background.

use std::{fmt, num::ParseIntError, str::FromStr, time::Duration};

use tenure_proto::etcdserverpb::{self as pb, lease_client::LeaseClient};
use tonic::{Status, transport::Channel};

use crate::{
    channel::{Client, MESSAGE_BYTES_MAX, Repeat},
    clock::{Deadline, Moment},
    error::ClientError,
};

/// The id of a lease. Shown as 16 hex digits, everywhere, so that it can be searched for.
///
/// Read are 16 hex digits, `0x` and hex digits, and decimal numbers; 16 digits are always hex, whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    const HEX_DIGITS: usize = 16;
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for LeaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<LeaseId, String> {
        // Ids are signed on the wire, and shown as the bits that they are: 8000… and more are negative.
        let hex = |digits: &str| u64::from_str_radix(digits, 16).map(|bits| LeaseId(bits as i64));
        let refuse = |_: ParseIntError| {
            "a lease id is 16 hex digits, 0x and hex digits, or a decimal number".to_owned()
        };
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            // from_str_radix takes a sign of its own, as in 0x+1.
            return if digits.starts_with('+') {
                Err("a sign after 0x".into())
            } else {
                hex(digits).map_err(refuse)
            };
        }
        if text.len() == LeaseId::HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return hex(text).map_err(refuse);
        }
        text.parse().map(LeaseId).map_err(refuse)
    }
}

/// etcd's API counts leases in whole seconds; a holder that asks for less gets more.
pub fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// A lease as it was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    pub id: LeaseId,
    /// What the server gave, which may be more than what was asked for.
    pub ttl: Duration,
    /// Until when it may be trusted without a renewal.
    pub deadline: Deadline,
    pub header: pb::ResponseHeader,
}

/// What one renewal brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewed {
    pub(crate) sent_at: Moment,
    pub(crate) remaining: Duration,
}

pub(crate) fn lease(channel: Channel) -> LeaseClient<Channel> {
    LeaseClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// An answered TTL as time; `None` when the lease is gone.
pub(crate) fn answered(ttl_s: i64) -> Option<Duration> {
    u64::try_from(ttl_s).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

impl Client {
    /// A lease with an id that the server picks.
    pub async fn grant(&self, ttl: Duration) -> Result<Grant, ClientError> {
        self.grant_as(LeaseId(0), ttl).await
    }

    /// A lease with this id, or a refusal when there is one already.
    pub async fn grant_as(&self, id: LeaseId, ttl: Duration) -> Result<Grant, ClientError> {
        let request = pb::LeaseGrantRequest { ttl: whole_seconds(ttl), id: id.0 };
        let (sent_at, response) = self
            .unary(Repeat::Never, |channel| {
                // Read for every attempt: only the last one made the lease.
                let sent_at = Moment::now();
                async move {
                    let response = lease(channel).lease_grant(request).await?;
                    Ok(response.map(|response| (sent_at, response)))
                }
            })
            .await?;
        let ttl = answered(response.ttl)
            .ok_or(ClientError::Protocol { what: "a lease was granted without a time to live" })?;
        Ok(Grant {
            id: LeaseId(response.id),
            ttl,
            deadline: Deadline::new(sent_at, ttl),
            header: response.header.unwrap_or_default(),
        })
    }

    /// Ends the lease and deletes its keys.
    pub async fn revoke(&self, id: LeaseId) -> Result<pb::LeaseRevokeResponse, ClientError> {
        self.unary(Repeat::Never, |channel| async move {
            lease(channel).lease_revoke(pb::LeaseRevokeRequest { id: id.0 }).await
        })
        .await
        .map_err(|error| if error.is_lease_not_found() { ClientError::LeaseNotFound { id } } else { error })
    }

    /// What is left of it, and with `keys` what goes with it.
    pub async fn time_to_live(
        &self,
        id: LeaseId,
        keys: bool,
    ) -> Result<pb::LeaseTimeToLiveResponse, ClientError> {
        let response = self
            .unary(Repeat::Harmless, |channel| async move {
                lease(channel).lease_time_to_live(pb::LeaseTimeToLiveRequest { id: id.0, keys }).await
            })
            .await?;
        // 0 is a lease in its last second; only less than that says that there is none.
        if response.ttl < 0 { Err(ClientError::LeaseNotFound { id }) } else { Ok(response) }
    }

    pub async fn leases(&self) -> Result<Vec<LeaseId>, ClientError> {
        let response = self
            .unary(Repeat::Harmless, |channel| async move {
                lease(channel).lease_leases(pb::LeaseLeasesRequest {}).await
            })
            .await?;
        Ok(response.leases.iter().map(|status| LeaseId(status.id)).collect())
    }

    /// Renews it once. A renewal may be repeated: two of them do no more than the later one.
    pub async fn keep_alive_once(&self, id: LeaseId) -> Result<Grant, ClientError> {
        let (sent_at, response) = self
            .unary(Repeat::Harmless, |channel| {
                let sent_at = Moment::now();
                async move {
                    let request = tokio_stream::once(pb::LeaseKeepAliveRequest { id: id.0 });
                    let mut answers = lease(channel).lease_keep_alive(request).await?.into_inner();
                    match answers.message().await? {
                        Some(answer) => Ok(tonic::Response::new((sent_at, answer))),
                        None => Err(Status::unavailable("the keep-alive stream ended without an answer")),
                    }
                }
            })
            .await?;
        let ttl = answered(response.ttl).ok_or(ClientError::LeaseNotFound { id })?;
        let header = response.header.unwrap_or_default();
        Ok(Grant { id, ttl, deadline: Deadline::new(sent_at, ttl), header })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_as_16_hex_digits_and_read_back() {
        for id in [1, 0x2d82_5707_9fa1_bc0c, i64::MAX, i64::MIN, -9] {
            let id = LeaseId(id);
            assert_eq!(id.to_string().len(), 16);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn ids_are_read_as_hex_with_0x_or_16_digits_and_else_as_decimal() {
        assert_eq!("0x1f".parse(), Ok(LeaseId(31)));
        assert_eq!("1234".parse(), Ok(LeaseId(1234)));
        assert_eq!("-9".parse(), Ok(LeaseId(-9)));
        assert_eq!("0000000000001234".parse(), Ok(LeaseId(0x1234)));
        assert_eq!("3273695759585762316".parse(), Ok(LeaseId(3_273_695_759_585_762_316)));
        for bad in ["", "0x", "0x+1", "abc", "1f", "0x12345678901234567", "99999999999999999999", "1 "] {
            assert!(bad.parse::<LeaseId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fractions_of_a_second_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(250)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(10)), 10);
        assert_eq!(whole_seconds(Duration::from_nanos(10_000_000_001)), 11);
        assert_eq!(whole_seconds(Duration::MAX), i64::MAX);
    }
}
