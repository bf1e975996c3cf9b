import { useState, type ReactNode } from 'react';
import { Alert, App, Button, Descriptions, Drawer, Empty, Flex, Skeleton, Tooltip } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { entityQuery, useDeleteEntity, type Item } from '../../data/entities';
import { ErrorNotice } from '../ErrorNotice';
import { ActivationButton } from './ActivationButton';
import { canWrite, labelKey, nameOf, type Entity } from './entity';
import { EntityForm } from './EntityForm';
import { showValue } from './showValue';

interface EntityDrawerProps {
  entity: Entity;
  itemKey: string;
  /** The object, if it is on the current page of the list; otherwise it is fetched. */
  known: Item | undefined;
  /** Role of the caller. */
  role: string | undefined;
  details: ((item: Item) => ReactNode) | undefined;
  actions: ((item: Item) => ReactNode) | undefined;
  onClose: () => void;
}

/** Drawer of one object: its value for each column of the list, and the actions on the object. */
export function EntityDrawer({ entity, itemKey, known, ...props }: EntityDrawerProps) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const [isEditing, setIsEditing] = useState(false);
  const remove = useDeleteEntity(entity.path);
  const fetched = useQuery({
    ...entityQuery(entity.path, entity.id, itemKey),
    enabled: known === undefined
  });
  const item = known ?? fetched.data;
  const isDeletable = entity.isDeletable ?? (() => true);
  const isWriter = item !== undefined && canWrite(entity, item, props.role);
  const isRefused = !isWriter && entity.writers.some(writer => writer === props.role);

  const confirmDelete = (shown: Item) => {
    modal.confirm({
      title: t('entities.delete-title', { name: nameOf(entity, shown) }),
      content: t(`${entity.name}.delete-warning`, t('entities.delete-warning')),
      okText: t('entities.delete'),
      okButtonProps: { danger: true },
      onOk: async () => {
        try {
          await remove.mutateAsync(itemKey);
          props.onClose();
          void message.success(t('entities.deleted'));
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  };

  return (
    <Drawer
      open
      onClose={props.onClose}
      size={entity.drawerWidth ?? 640}
      title={item === undefined ? itemKey : nameOf(entity, item)}
    >
      {item === undefined ? (
        <Placeholder error={fetched.error} isPending={fetched.isPending} name={itemKey} />
      ) : (
        <>
          {isRefused && (
            <Alert showIcon title={t('entities.write-refused')} style={{ marginBottom: 16 }} />
          )}
          <Flex wrap gap="small" style={{ marginBottom: 16 }}>
            {isWriter && entity.fields.some(field => field.only !== 'create') && (
              <Button onClick={() => setIsEditing(true)}>{t('entities.edit')}</Button>
            )}
            {isWriter && <ActivationButton entity={entity} item={item} />}
            {!isRefused && props.actions?.(item)}
            {isWriter && entity.canDelete && (
              <Tooltip title={isDeletable(item) ? '' : t(`${entity.name}.delete-refused`)}>
                <Button danger disabled={!isDeletable(item)} onClick={() => confirmDelete(item)}>
                  {t('entities.delete')}
                </Button>
              </Tooltip>
            )}
          </Flex>
          <Descriptions
            size="small"
            column={1}
            bordered
            items={entity.columns.map(column => ({
              key: column.key,
              label: t(labelKey(entity, column.key)),
              children: showValue(item[column.key], column, item, entity.name)
            }))}
          />
          {props.details?.(item)}
          {isEditing && (
            <EntityForm entity={entity} item={item} onClose={() => setIsEditing(false)} />
          )}
        </>
      )}
    </Drawer>
  );
}

/** Shown instead of the object: the error, a skeleton, or a notice that there is no such object. */
function Placeholder(props: { error: Error | null; isPending: boolean; name: string }) {
  const { t } = useTranslation();
  if (props.error) {
    return <ErrorNotice error={props.error} />;
  }
  return props.isPending ? (
    <Skeleton active />
  ) : (
    <Empty
      image={Empty.PRESENTED_IMAGE_SIMPLE}
      description={t('entities.missing', { name: props.name })}
    />
  );
}
