//! Questions about members: who belongs to the cluster, and how one of them is doing.

use tenure_proto::etcdserverpb::{
    self as pb, cluster_client::ClusterClient, maintenance_client::MaintenanceClient,
};

use crate::{
    channel::{Client, Repeat},
    error::ClientError,
};

impl Client {
    /// Every member, as the leader knows them when `linearizable`, else as the asked member does.
    pub async fn member_list(&self, linearizable: bool) -> Result<pb::MemberListResponse, ClientError> {
        self.unary(Repeat::Harmless, |channel| async move {
            ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable }).await
        })
        .await
    }

    /// The status of the member that happens to serve this client.
    pub async fn status(&self) -> Result<pb::StatusResponse, ClientError> {
        self.unary(Repeat::Harmless, |channel| async move {
            MaintenanceClient::new(channel).status(pb::StatusRequest {}).await
        })
        .await
    }

    /// The status of each endpoint on its own, in the order in which they were given. One that cannot be reached is an answer, too.
    pub async fn status_of_each(&self) -> Vec<(String, Result<pb::StatusResponse, ClientError>)> {
        let asked: Vec<_> = self
            .endpoints()
            .enumerate()
            .map(|(index, name)| {
                let alone = self.only(index);
                (name.to_owned(), tokio::spawn(async move { alone.status().await }))
            })
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (name, task) in asked {
            let status = task.await.expect("the task neither panics nor is aborted");
            answers.push((name, status));
        }
        answers
    }
}
