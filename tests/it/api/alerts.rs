use serde_json::json;

use super::Api;

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_is_not_there_is_not_resolved() {
    let api = Api::new().await;
    let token = api.platform().await;
    let answer = api
        .post("/v1/admin/alerts/999/resolve", &token, json!({}))
        .await;
    assert_eq!(answer.problem(), (404, "not_found"));
}
