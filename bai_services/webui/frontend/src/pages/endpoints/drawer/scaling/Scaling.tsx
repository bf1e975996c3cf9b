import { useState } from 'react';
import { App, Button, Descriptions, Empty, Flex, Typography } from 'antd';
import i18next from 'i18next';
import { useTranslation } from 'react-i18next';
import type { Entity } from '../../../../components/entities/entity';
import { EntityList } from '../../../../components/entities/EntityList';
import {
  REFRESH_MILLIS,
  useChangeEndpoint,
  type Endpoint,
  type Scaling as ScalingChange
} from '../../../../data/serving/endpoints';
import { reasonText } from '../../../../i18n/reasonText';
import { replicasText } from '../../endpoints';
import { useRights } from '../../rights';
import type { EndpointTabProps } from '../EndpointDrawer';
import { LoadChart } from './LoadChart';
import { RuleFacts } from './RuleFacts';
import { ScalingForm } from './ScalingForm';

const changesOf = (key: string): Entity => ({
  name: 'endpoint-scalings',
  path: `/endpoints/${key}/scalings`,
  id: 'id',
  defaultSort: '-created_at',
  refreshMillis: REFRESH_MILLIS,
  columns: [
    { key: 'created_at', isSortable: true },
    { key: 'former', isSortable: true },
    { key: 'replicas', isSortable: true },
    {
      key: 'reason',
      hasSentences: true,
      render: item => changeReason(item as unknown as ScalingChange)
    }
  ],
  filters: [],
  fields: [],
  writers: [],
  canCreate: false,
  canDelete: false,
  hasNoDetails: true
});

const changeReason = ({ reason, reason_coded: coded }: ScalingChange) =>
  reasonText(i18next, { message: reason, coded });

/** The scaling rule of an endpoint, its load and replicas over time, and its last changes. */
export function Scaling({ endpoint, search, onChange }: EndpointTabProps) {
  const { t, i18n } = useTranslation();
  const [changes] = useState(() => changesOf(endpoint.id));
  const { scaling: rule, scaling_reason: reason, scaling_reason_coded: coded } = endpoint;
  const facts = {
    replicas: replicasText(endpoint),
    ...(reason && { reason: reasonText(i18n, { message: reason, coded }) })
  };
  return (
    <>
      <RuleActions endpoint={endpoint} />
      <Descriptions
        size="small"
        column={1}
        items={Object.entries(facts).map(([key, children]) => ({
          key,
          label: t(`endpoint-scaling.now-${key}`),
          children
        }))}
      />
      {rule ? (
        <>
          <LoadChart endpoint={endpoint} rule={rule} />
          <RuleFacts rule={rule} />
        </>
      ) : (
        <Empty
          image={Empty.PRESENTED_IMAGE_SIMPLE}
          description={t('endpoint-scaling.none', { count: endpoint.replicas })}
        />
      )}
      <Typography.Title level={5} style={{ marginBlockStart: 24 }}>
        {t('endpoint-scalings.title')}
      </Typography.Title>
      <EntityList
        entity={changes}
        search={search.list ?? {}}
        onSearch={list => onChange({ list: { ...search.list, ...list } })}
      />
    </>
  );
}

/** Add, edit or remove the rule. */
function RuleActions({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const { isManager } = useRights(endpoint);
  const [isOpen, setIsOpen] = useState(false);
  const change = useChangeEndpoint(endpoint.id);
  if (!isManager || endpoint.status === 'stopping') {
    return null;
  }
  const remove = () =>
    void modal.confirm({
      title: t('endpoint-scaling.remove-title', { name: endpoint.name }),
      content: t('endpoint-scaling.remove-warning', { count: endpoint.replicas }),
      okText: t('endpoint-scaling.remove'),
      okButtonProps: { danger: true },
      onOk: async () => {
        try {
          // Set a fixed number, which replaces the rule.
          await change.mutateAsync({ replicas: endpoint.replicas });
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  return (
    <Flex wrap gap="small" style={{ marginBottom: 8 }}>
      <Button type={endpoint.scaling ? 'default' : 'primary'} onClick={() => setIsOpen(true)}>
        {t(endpoint.scaling ? 'endpoint-scaling.edit' : 'endpoint-scaling.add')}
      </Button>
      {endpoint.scaling && (
        <Button danger onClick={remove} loading={change.isPending}>
          {t('endpoint-scaling.remove')}
        </Button>
      )}
      {isOpen && <ScalingForm endpoint={endpoint} onClose={() => setIsOpen(false)} />}
    </Flex>
  );
}
