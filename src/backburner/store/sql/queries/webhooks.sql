-- Webhook deliveries. Shared by both dialects.

-- name: insert_delivery
INSERT INTO webhook_deliveries (delivery_id, task_id, owner, url, endpoint, body, created_at, due_at)
VALUES (:delivery_id, :task_id, :owner, :url, :endpoint, :body, :now, :now);

-- name: due_deliveries
-- A delivery that is due too late was delayed before the clock was set back.
SELECT * FROM webhook_deliveries WHERE due_at IS NOT NULL AND (due_at <= :now OR due_at > :too_late)
ORDER BY due_at, delivery_id LIMIT :limit;

-- name: lease_delivery
-- Returns no row if another process was first.
UPDATE webhook_deliveries SET due_at = :until, attempts = attempts + 1
WHERE delivery_id = :delivery_id AND due_at = :due_at
RETURNING delivery_id;

-- name: delete_delivery
DELETE FROM webhook_deliveries WHERE delivery_id = :delivery_id RETURNING task_id;

-- name: fail_delivery
UPDATE webhook_deliveries SET due_at = :due_at, last_error = :error WHERE delivery_id = :delivery_id RETURNING task_id;

-- name: postpone_deliveries
UPDATE webhook_deliveries SET due_at = :until WHERE endpoint = :endpoint AND due_at IS NOT NULL AND due_at < :until;

-- name: deliveries
SELECT * FROM webhook_deliveries WHERE CAST(:owner AS TEXT) IS NULL OR owner = :owner
ORDER BY created_at, delivery_id LIMIT :limit;

-- name: retry_delivery
UPDATE webhook_deliveries SET due_at = :now, created_at = :now, attempts = 0
WHERE delivery_id = :delivery_id AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
RETURNING delivery_id;

-- name: pending_delivery
SELECT 1 AS one FROM webhook_deliveries WHERE due_at IS NOT NULL LIMIT 1;

-- name: delete_deliveries
DELETE FROM webhook_deliveries WHERE task_id = :task_id;
