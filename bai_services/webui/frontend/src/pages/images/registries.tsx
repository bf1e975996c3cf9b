import { App, Button, Progress, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { activationViews, type Activation, type Entity } from '../../components/entities/entity';
import { useCancelScan, useScanRegistry } from '../../data/cluster/imageRegistries';
import type { Item } from '../../data/entities';

const KINDS = ['docker', 'harbor', 'ghcr', 'gitlab', 'ngc', 'ecr'] as const;
const REFRESH_MILLIS = 5_000;
const BY_ENABLED: Activation = { key: 'is_enabled', on: true, off: false };

/** Registries from which images are found and pulled. */
export const REGISTRIES: Entity = {
  name: 'image-registries',
  path: '/image-registries',
  id: 'name',
  defaultSort: 'name',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'name', isSortable: true },
    { key: 'url', isSortable: true },
    { key: 'kind', isSortable: true },
    { key: 'username', isOptional: true },
    { key: 'has_password', isOptional: true },
    { key: 'is_enabled', isSortable: true },
    { key: 'is_global', isOptional: true },
    { key: 'allowed_projects', isOptional: true },
    { key: 'patterns', isOptional: true },
    { key: 'scan_status', isSortable: true, render: registry => <Scan registry={registry} /> },
    { key: 'scan_ended_at', isSortable: true },
    { key: 'scan', render: registry => <ScanButton registry={registry} /> }
  ],
  filters: [
    { key: 'name__contains' },
    { key: 'kind', choices: KINDS.map(value => ({ value, label: value })) }
  ],
  fields: [
    { key: 'name', kind: 'text', isRequired: true, only: 'create' },
    { key: 'kind', kind: 'choice', choices: KINDS, isRequired: true, only: 'create' },
    { key: 'url', kind: 'text' },
    { key: 'username', kind: 'text' },
    { key: 'password', kind: 'password' },
    { key: 'ca_certificate', kind: 'lines' },
    { key: 'repositories', kind: 'words' },
    { key: 'patterns', kind: 'words' },
    { key: 'rescan_seconds', kind: 'number' },
    { key: 'activates_images', kind: 'switch' },
    { key: 'labelled_only', kind: 'switch', only: 'change' },
    { key: 'is_enabled', kind: 'switch', only: 'change' },
    { key: 'is_global', kind: 'switch', only: 'change' },
    { key: 'allowed_projects', kind: 'words', only: 'change' }
  ],
  writers: ['superadmin'],
  canCreate: true,
  canDelete: true,
  views: activationViews(BY_ENABLED),
  activation: BY_ENABLED
};

const isOpen = (registry: Item) =>
  registry['scan_status'] === 'queued' || registry['scan_status'] === 'running';

function Scan({ registry }: { registry: Item }) {
  const { t } = useTranslation();
  const status = String(registry['scan_status']);
  const label = t(`image-registries.status-${status}`, status);
  const [tags, checked] = [Number(registry['scan_tags']), Number(registry['scan_checked'])];
  const problem = typeof registry['scan_problem'] === 'string' ? registry['scan_problem'] : '';
  return (
    <div style={{ minWidth: 160 }}>
      {label}
      {isOpen(registry) && (
        <Progress
          size="small"
          status="active"
          percent={tags > 0 ? Math.floor((100 * checked) / tags) : 0}
          aria-label={label}
        />
      )}
      {status !== 'never' && (
        <div>
          {t('image-registries.counts', {
            tags,
            created: registry['scan_new'],
            changed: registry['scan_changed'],
            skipped: registry['scan_skipped'],
            removed: registry['scan_removed']
          })}
        </div>
      )}
      {problem && (
        <Typography.Paragraph
          type={status === 'failed' ? 'danger' : 'warning'}
          ellipsis={{ rows: 2, tooltip: problem }}
          style={{ marginBottom: 0, maxWidth: 320 }}
        >
          {problem}
        </Typography.Paragraph>
      )}
    </div>
  );
}

function ScanButton({ registry }: { registry: Item }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const scan = useScanRegistry();
  const cancel = useCancelScan();
  const name = String(registry['name']);
  const action = isOpen(registry) ? cancel : scan;
  return (
    <Button
      size="small"
      loading={action.isPending}
      onClick={event => {
        event.stopPropagation();
        action.mutate(name, { onError: error => void message.error(error.message) });
      }}
    >
      {t(isOpen(registry) ? 'image-registries.cancel' : 'image-registries.scan')}
    </Button>
  );
}
