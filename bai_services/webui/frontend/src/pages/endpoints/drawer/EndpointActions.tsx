import { useState } from 'react';
import { App, Button, Flex } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../../components/entities/entity';
import { EntityForm } from '../../../components/entities/EntityForm';
import { useChangeEndpoint, usePromote, type Endpoint } from '../../../data/serving/endpoints';
import { useRights } from '../rights';
import { usePromotable } from '../usePromotable';
import { DeleteEndpoint } from './DeleteEndpoint';
import type { ChangeSearch } from './EndpointDrawer';
import { ScaleEndpoint } from './ScaleEndpoint';

const LIMITS: Entity = {
  name: 'endpoints',
  path: '/endpoints',
  id: 'id',
  defaultSort: 'name',
  columns: [{ key: 'name' }],
  filters: [],
  fields: [
    { key: 'is_public', kind: 'switch' },
    { key: 'max_queue', kind: 'number' },
    { key: 'queue_seconds', kind: 'number' },
    { key: 'max_concurrent_per_replica', kind: 'number' },
    { key: 'request_seconds', kind: 'number' },
    { key: 'max_body_bytes', kind: 'number' },
    { key: 'prefix_characters', kind: 'number' },
    { key: 'tags', kind: 'words' }
  ],
  writers: ['user', 'admin', 'superadmin'],
  canCreate: false,
  canDelete: false
};

type Dialog = 'scale' | 'limits' | 'delete';

interface EndpointActionsProps {
  endpoint: Endpoint;
  onChange: ChangeSearch;
  onClose: () => void;
}

/** The actions that the user may take; the owner may take all. */
export function EndpointActions({ endpoint, onChange, onClose }: EndpointActionsProps) {
  const { t } = useTranslation();
  const { isOwner, isManager } = useRights(endpoint);
  const [dialog, setDialog] = useState<Dialog>();
  const close = () => setDialog(undefined);
  if (!isManager) {
    return null;
  }
  const isLive = endpoint.status !== 'stopping';
  return (
    <Flex wrap gap="small" style={{ marginBottom: 8 }}>
      {isLive && <PauseButton endpoint={endpoint} />}
      {isLive && <Button onClick={() => setDialog('scale')}>{t('endpoints.scale')}</Button>}
      {isLive && isOwner && <PromoteButton endpoint={endpoint} />}
      {isLive && isOwner && (
        <Button onClick={() => onChange({ form: 'revision', base: undefined })}>
          {t('endpoints.deploy')}
        </Button>
      )}
      {isLive && isOwner && (
        <Button onClick={() => setDialog('limits')}>{t('endpoints.limits')}</Button>
      )}
      {isLive && (
        <Button danger onClick={() => setDialog('delete')}>
          {t('entities.delete')}
        </Button>
      )}
      {dialog === 'scale' && <ScaleEndpoint endpoint={endpoint} onClose={close} />}
      {dialog === 'limits' && <EntityForm entity={LIMITS} item={{ ...endpoint }} onClose={close} />}
      {dialog === 'delete' && (
        // Close the drawer after the deletion; the list shows the endpoint until its replicas have
        // ended.
        <DeleteEndpoint endpoint={endpoint} onClose={close} onDeleted={onClose} />
      )}
    </Flex>
  );
}

function PauseButton({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const change = useChangeEndpoint(endpoint.id);
  const set = async (isPaused: boolean) => {
    try {
      await change.mutateAsync({ is_paused: isPaused });
    } catch (error) {
      void message.error((error as Error).message);
    }
  };
  const pause = () =>
    void modal.confirm({
      title: t('endpoints.pause-title', { name: endpoint.name }),
      content: t('endpoints.pause-warning'),
      okText: t('endpoints.pause'),
      onOk: () => set(true)
    });
  return (
    <Button
      loading={change.isPending}
      onClick={() => (endpoint.is_paused ? void set(false) : pause())}
    >
      {t(endpoint.is_paused ? 'endpoints.resume' : 'endpoints.pause')}
    </Button>
  );
}

/** Promote a blue-green or canary rollout in progress. */
function PromoteButton({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const promote = usePromote(endpoint.id);
  if (!usePromotable(endpoint)) {
    return null;
  }
  const confirm = () =>
    void modal.confirm({
      title: t('endpoints.promote-title', { number: endpoint.target_revision }),
      content: t('endpoints.promote-warning'),
      okText: t('endpoints.promote'),
      onOk: async () => {
        try {
          await promote.mutateAsync();
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  return (
    <Button type="primary" loading={promote.isPending} onClick={confirm}>
      {t('endpoints.promote')}
    </Button>
  );
}
